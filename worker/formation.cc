#include "worker/formation.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace muster::worker {

Formation::Formation(Loop& loop, LinkAcceptor& acceptor, FormationPlan plan, Callbacks callbacks)
    : loop_(loop),
      acceptor_(acceptor),
      plan_(std::move(plan)),
      callbacks_(std::move(callbacks)),
      announced_(plan_.size) {
  MUSTER_CHECK(plan_.rank < plan_.size && plan_.hosts.size() == plan_.size, "a rank of the world");
  world_.control.resize(plan_.size);
  world_.data.resize(plan_.size);
}

Formation::~Formation() {
  acceptor_.Forget(plan_.generation);
}

void Formation::Start() {
  acceptor_.Expect(plan_.generation, plan_.rank, plan_.link_key, [this](LinkId id, PrivateFd fd) {
    OnAccepted(id, std::move(fd));
  });
  if (plan_.rank != 0) {
    Dial(0, LinkKind::kControl, plan_.coordinator);
  }
}

void Formation::SetSegment(std::shared_ptr<Segment> segment) {
  segment_ = std::move(segment);
  if (plan_.rank != 0) {
    return AnnounceSelf();
  }
  announced_[0] = OwnAnnounce();
  CheckAnnounced();
}

// Whichever comes last, the link or the segment.
void Formation::AnnounceSelf() {
  if (segment_ && world_.control[0]) {
    world_.control[0]->Send(Encode(OwnAnnounce()));
  }
}

Announce Formation::OwnAnnounce() const {
  Announce announce;
  announce.addresses = plan_.own_addresses;
  announce.incarnation = plan_.incarnation;
  announce.host = plan_.hosts[plan_.rank];
  announce.has_segment = *segment_ != nullptr;
  announce.sets = plan_.sets;
  announce.next_set_id = plan_.next_set_id;
  return announce;
}

void Formation::Dial(uint32_t rank, LinkKind kind, const std::vector<std::string>& addresses) {
  if (addresses.empty()) {
    ReportBroken(rank, "rank " + std::to_string(rank) + " announced no address");
    return;
  }
  LinkDialer::Callbacks callbacks;
  callbacks.on_link = [this, rank, kind](PrivateFd fd) {
    if (kind == LinkKind::kControl) {
      AddControlLink(rank, std::move(fd));
    } else {
      world_.data[rank] = std::move(fd);
      CheckComplete();
    }
  };
  callbacks.on_unreachable = [this, rank](const LinkDialer::Unreachable& why) {
    if (!why.refused && !complete_) {
      spdlog::warn("{}", why.evidence);  // A matter of the network, which somebody has to look at.
    }
    ReportBroken(rank, why.evidence);
  };
  auto& dialer = dialers_[{rank, kind}];
  dialer = std::make_unique<LinkDialer>(loop_,
                                        LinkId{plan_.generation, plan_.rank, rank, kind},
                                        plan_.link_key,
                                        WorthDialling(addresses),
                                        std::move(callbacks));
  dialer->Start();
}

// A rank dials again after an answer that came too late for it, so the newest link counts.
void Formation::OnAccepted(LinkId id, PrivateFd fd) {
  if (complete_ || id.from >= plan_.size || id.from <= plan_.rank) {
    return;
  }
  if (id.kind == LinkKind::kData) {
    world_.data[id.from] = std::move(fd);
    CheckComplete();
  } else if (plan_.rank == 0) {
    AddControlLink(id.from, std::move(fd));
  }
}

void Formation::AddControlLink(uint32_t rank, PrivateFd fd) {
  auto& link = world_.control[rank];
  if (link) {
    link->Close();
    replaced_.push_back(std::move(link));
  }
  link = std::make_unique<ControlLink>(loop_, std::move(fd));
  ControlLink::Callbacks callbacks;
  callbacks.on_frame = [this, rank](std::string_view frame) { OnControlFrame(rank, frame); };
  callbacks.on_broken = [this, rank](const std::string& reason) {
    ReportBroken(rank, "the control link with rank " + std::to_string(rank) + " broke: " + reason);
  };
  if (plan_.rank != 0) {
    AnnounceSelf();
  }
  world_.control[rank]->Start(std::move(callbacks));
}

// One frame per link belongs to the formation; the ones behind it to whoever gets the links.
void Formation::OnControlFrame(uint32_t rank, std::string_view frame) {
  world_.control[rank]->Pause();
  Result<ControlMessage> message = Decode(frame);
  if (message.ok() && plan_.rank == 0 && std::holds_alternative<Announce>(message.value())) {
    OnAnnounce(rank, std::get<Announce>(std::move(message).value()));
  } else if (message.ok() && plan_.rank != 0 &&
             std::holds_alternative<AddressTable>(message.value())) {
    OnTable(std::get<AddressTable>(message.value()));
  } else {
    ReportBroken(rank, "rank " + std::to_string(rank) + " sent what does not belong here");
  }
}

void Formation::OnAnnounce(uint32_t rank, Announce message) {
  if (message.host != plan_.hosts[rank]) {
    return ReportBroken(rank, "rank " + std::to_string(rank) + " announced another host");
  }
  announced_[rank] = std::move(message);
  if (table_) {
    world_.control[rank]->Send(Encode(*table_));  // It dialled again.
    return;
  }
  CheckAnnounced();
}

void Formation::CheckAnnounced() {
  const bool all = std::all_of(
      announced_.begin(), announced_.end(), [](const auto& announce) { return announce; });
  if (!all) {
    return;
  }
  AddressTable table = MakeTable();
  const std::string frame = Encode(table);
  for (const auto& link : world_.control) {
    if (link) {
      link->Send(frame);
    }
  }
  OnTable(table);
}

// Of the process sets, whoever has seen most of the log knows best.
AddressTable Formation::MakeTable() const {
  AddressTable table;
  std::vector<bool> has_segment;
  const Announce* newest = &*announced_[0];
  for (const std::optional<Announce>& announce : announced_) {
    table.addresses.push_back(announce->addresses);
    table.incarnations.push_back(announce->incarnation);
    has_segment.push_back(announce->has_segment);
    if (IsNewer(announce->sets, announce->next_set_id, newest->sets, newest->next_set_id)) {
      newest = &*announce;
    }
  }
  table.hosts = plan_.hosts;
  table.backend = ChooseBackend(plan_.backend, plan_.hosts, has_segment);
  if (newest->next_set_id == 1) {
    const ProcessSets first = FirstSets(table.incarnations);
    table.sets = first.ToRecords();
    table.next_set_id = first.next_id();
  } else {
    table.sets = newest->sets;
    table.next_set_id = newest->next_set_id;
  }
  return table;
}

// Sets that are none are left out: init() compares, and says so.
ProcessSets Formation::FirstSets(const std::vector<uint64_t>& incarnations) const {
  ProcessSets sets(incarnations);
  for (const std::vector<int32_t>& ranks : plan_.first_sets) {
    if (sets.FindAddFault(ranks).empty()) {
      sets.Add(ranks);
    }
  }
  return sets;
}

bool Formation::Adopt(const AddressTable& table) {
  if (table.addresses.size() != plan_.size || table.hosts != plan_.hosts ||
      table.incarnations.size() != plan_.size ||
      table.incarnations[plan_.rank] != plan_.incarnation) {
    return false;
  }
  Result<ProcessSets> sets =
      ProcessSets::FromRecords(table.sets, table.next_set_id, table.incarnations);
  if (!sets.ok()) {
    return false;
  }
  world_.sets = std::move(sets).value();
  world_.backend = table.backend;
  world_.hosts = table.hosts;
  // Where no backend uses it, the rings would not be looked into by all.
  world_.segment = table.backend == BackendKind::kGloo ? nullptr : segment_.value_or(nullptr);
  return table.backend == BackendKind::kGloo || world_.segment != nullptr ||
         std::count(plan_.hosts.begin(), plan_.hosts.end(), plan_.hosts[plan_.rank]) == 1;
}

void Formation::OnTable(const AddressTable& table) {
  if (!Adopt(table)) {
    return ReportBroken(0, "the table of addresses is not of this world");
  }
  table_ = table;
  const uint32_t dialled = table.backend == BackendKind::kShm ? 0 : plan_.rank;
  for (uint32_t rank = 0; rank < dialled; ++rank) {
    if (!world_.data[rank].valid()) {
      Dial(rank, LinkKind::kData, table.addresses[rank]);
    }
  }
  CheckComplete();
}

void Formation::CheckComplete() {
  if (complete_ || !table_) {
    return;
  }
  const bool has_data_links = world_.backend != BackendKind::kShm;
  for (uint32_t rank = 0; has_data_links && rank < plan_.size; ++rank) {
    if (rank != plan_.rank && !world_.data[rank].valid()) {
      return;
    }
  }
  complete_ = true;
  acceptor_.Forget(plan_.generation);
  callbacks_.on_formed(std::move(world_));
}

void Formation::ReportBroken(uint32_t rank, const std::string& evidence) {
  if (!complete_) {
    callbacks_.on_broken(rank, evidence);
  }
}

}  // namespace muster::worker
