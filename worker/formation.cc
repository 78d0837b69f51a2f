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
  MUSTER_CHECK(plan_.rank < plan_.size, "a rank of the world");
  links_.control.resize(plan_.size);
  links_.data.resize(plan_.size);
}

Formation::~Formation() {
  acceptor_.Forget(plan_.generation);
}

void Formation::Start() {
  acceptor_.Expect(plan_.generation, plan_.rank, plan_.link_key, [this](LinkId id, PrivateFd fd) {
    OnAccepted(id, std::move(fd));
  });
  if (plan_.rank == 0) {
    announced_[0] = plan_.own_addresses;
    has_table_ = plan_.size == 1;
    CheckComplete();
  } else {
    Dial(0, LinkKind::kControl, plan_.coordinator);
  }
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
      links_.data[rank] = std::move(fd);
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
    links_.data[id.from] = std::move(fd);
    CheckComplete();
  } else if (plan_.rank == 0) {
    AddControlLink(id.from, std::move(fd));
  }
}

void Formation::AddControlLink(uint32_t rank, PrivateFd fd) {
  auto& link = links_.control[rank];
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
    link->Send(Encode(Announce{plan_.own_addresses}));
  }
  link->Start(std::move(callbacks));
}

// One frame per link belongs to the formation; the ones behind it to whoever gets the links.
void Formation::OnControlFrame(uint32_t rank, std::string_view frame) {
  links_.control[rank]->Pause();
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
  announced_[rank] = std::move(message.addresses);
  if (has_table_) {
    links_.control[rank]->Send(Encode(AddressTable{announced_}));  // It dialled again.
    return;
  }
  const bool all = std::none_of(
      announced_.begin(), announced_.end(), [](const auto& list) { return list.empty(); });
  if (!all) {
    return;
  }
  has_table_ = true;
  const std::string table = Encode(AddressTable{announced_});
  for (const auto& link : links_.control) {
    if (link) {
      link->Send(table);
    }
  }
  CheckComplete();
}

void Formation::OnTable(const AddressTable& table) {
  if (table.addresses.size() != plan_.size) {
    ReportBroken(0, "the table of addresses is not of this world");
    return;
  }
  has_table_ = true;
  for (uint32_t rank = 0; rank < plan_.rank; ++rank) {
    if (!links_.data[rank].valid()) {
      Dial(rank, LinkKind::kData, table.addresses[rank]);
    }
  }
  CheckComplete();
}

void Formation::CheckComplete() {
  if (complete_ || !has_table_) {
    return;
  }
  for (uint32_t rank = 0; rank < plan_.size; ++rank) {
    if (rank != plan_.rank && !links_.data[rank].valid()) {
      return;
    }
  }
  complete_ = true;
  acceptor_.Forget(plan_.generation);
  callbacks_.on_formed(std::move(links_));
}

void Formation::ReportBroken(uint32_t rank, const std::string& evidence) {
  if (!complete_) {
    callbacks_.on_broken(rank, evidence);
  }
}

}  // namespace muster::worker
