#include "worker/elastic_sync.h"

#include <cstring>

#include "common/log.h"
#include "worker/core/dtype.h"
#include "worker/elastic_transfer.h"
#include "worker/fault.h"

namespace muster::worker {
namespace {

// A rank's claim on the wire: a flag and a commit.
struct WireClaim {
  uint64_t holds = 0;
  uint64_t generation = 0;
  uint64_t sequence = 0;
};

std::string EncodeClaim(const std::optional<CommitId>& held) {
  const WireClaim claim = held ? WireClaim{1, held->generation, held->sequence} : WireClaim{};
  return std::string(reinterpret_cast<const char*>(&claim), sizeof claim);
}

std::optional<CommitId> DecodeClaim(const std::string& bytes) {
  WireClaim claim;
  if (bytes.size() != sizeof claim) {
    throw Error("elastic::State: a rank claims its commit in " + std::to_string(bytes.size()) +
                " bytes; do all workers run the same version?");
  }
  std::memcpy(&claim, bytes.data(), sizeof claim);
  if (claim.holds == 0) {
    return std::nullopt;
  }
  return CommitId{claim.generation, claim.sequence};
}

// A mismatch on some rank. If the world has a commit to lose, the ranks that fit go on: the others
// end, and the next world is made without them. Else it is a mistake in the program: all end.
void ThrowMismatch(const std::vector<std::string>& problems, int own_rank, bool fresh) {
  std::string others;
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) {
      continue;
    }
    const std::string sentence = "elastic::State of rank " + std::to_string(rank) +
                                 " differs from the source's: " + problems[rank];
    if (static_cast<int>(rank) == own_rank) {
      throw Error(sentence);
    }
    others += (others.empty() ? "" : "; ") + sentence;
  }
  if (others.empty()) {
    return;
  }
  if (fresh) {
    throw Error(others);
  }
  throw WorkersLost(others);
}

}  // namespace

Synchronizer::Synchronizer(Runtime& runtime,
                           const std::vector<Registered>& entries,
                           Snapshot& snapshot,
                           CommitLedger& ledger)
    : runtime_(runtime),
      entries_(entries),
      snapshot_(snapshot),
      ledger_(ledger),
      held_before_(ledger.held()) {}

SyncReport Synchronizer::Run() {
  FaultPoint("sync", runtime_.place().rank);
  source_ = AgreeOnSource();
  if (source_.unanimous && AllHoldTheSameBytes()) {
    snapshot_.WriteBack(entries_, Snapshot::Part::kAll);
    return {.source = source_};
  }
  if (source_.fresh) {
    // On all ranks: should rank 0 die now, another starts from its own values, not from a mixture.
    snapshot_.Take(entries_, Snapshot::Copy::kAll);
    if (IsSource()) {
      ledger_.Hold(source_.commit);
    }
  }
  uint64_t bytes = 0;
  try {
    bytes = Receive();
  } catch (const WorkersLost&) {
    if (source_.fresh) {
      snapshot_.WriteBack(entries_, Snapshot::Part::kAll);
    }
    throw;
  }
  return {.source = source_, .bytes = bytes};
}

uint64_t Synchronizer::Receive() {
  const Landing landing = AgreeOnManifest();
  const uint64_t bytes = SpreadTensors(landing);
  LoadValues(landing);
  Barrier();
  FaultPoint("sync_end", runtime_.place().rank);
  ReplaceSnapshot(landing);
  return bytes;
}

SyncSource Synchronizer::AgreeOnSource() {
  std::vector<std::optional<CommitId>> held;
  for (const std::string& claim :
       GatherTexts(runtime_, "muster.sync.claims", EncodeClaim(ledger_.held()))) {
    held.push_back(DecodeClaim(claim));
  }
  return ChooseSource(held, runtime_.place().generation);
}

bool Synchronizer::AllHoldTheSameBytes() {
  const uint64_t digest = snapshot_.Digest(entries_);
  const std::string mine(reinterpret_cast<const char*>(&digest), sizeof digest);
  const std::vector<std::string> all = GatherTexts(runtime_, "muster.sync.digests", mine);
  for (const std::string& other : all) {
    if (other != all[source_.rank]) {
      if (IsSource()) {
        spdlog::warn(
            "elastic::State: ranks held different bytes under the same commit; rank {}'s are taken."
            " Something in the program differs between ranks",
            source_.rank);
      }
      return false;
    }
  }
  return true;
}

Landing Synchronizer::AgreeOnManifest() {
  std::string encoded;
  if (IsSource()) {
    encoded = EncodeManifest(MakeManifest(entries_, snapshot_));
  }
  encoded = BroadcastText(runtime_, "muster.sync.manifest", source_.rank, std::move(encoded));

  Result<Landing> landing = Landing{};
  Result<Manifest> manifest = DecodeManifest(encoded);
  if (manifest.ok()) {
    manifest_ = std::move(manifest).value();
    landing = FindLanding(manifest_, entries_);
  } else {
    landing = manifest.status();
  }
  const std::string problem = landing.ok() ? "" : landing.status().message();
  const auto problems = GatherTexts(runtime_, "muster.sync.problems", problem);
  ThrowMismatch(problems, runtime_.place().rank, source_.fresh);
  return std::move(landing).value();
}

uint64_t Synchronizer::SpreadTensors(const Landing& landing) {
  std::vector<std::pair<void*, size_t>> buffers;
  for (size_t i = 0; i < landing.entries.size(); ++i) {
    const std::vector<Tensor>& live = landing.tensors[i];
    for (size_t t = 0; t < live.size(); ++t) {
      void* const saved = IsSource()
                              ? snapshot_.members()[landing.entries[i]].tensors[t].data.bytes.get()
                              : nullptr;
      buffers.emplace_back(IsSource() ? saved : live[t].data, ByteSize(live[t]));
    }
  }
  Broadcasts broadcasts(runtime_, "muster.sync.tensors", source_.rank);
  const size_t half = buffers.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    broadcasts.Add(buffers[i].first, buffers[i].second);
  }
  broadcasts.Finish();  // A fault may throw: nothing is under way here.
  FaultPoint("sync_bulk", runtime_.place().rank);
  for (size_t i = half; i < buffers.size(); ++i) {
    broadcasts.Add(buffers[i].first, buffers[i].second);
  }
  broadcasts.Finish();
  return broadcasts.bytes();
}

void Synchronizer::LoadValues(const Landing& landing) {
  if (IsSource()) {
    // Its live memory may have moved on since its commit.
    snapshot_.WriteBack(entries_, Snapshot::Part::kAll);
    return;
  }
  for (size_t i = 0; i < landing.entries.size(); ++i) {
    entries_[landing.entries[i]].member->load(manifest_[i].value);
  }
  if (held_before_ == source_.commit) {
    // What is not synced belongs to the same commit as what is.
    snapshot_.WriteBack(entries_, Snapshot::Part::kPerRank);
  }
}

void Synchronizer::Barrier() {
  Submission submission;
  submission.kind = OpKind::kBarrier;
  submission.name = "muster.sync.end";
  runtime_.Submit(std::move(submission)).wait();
}

void Synchronizer::ReplaceSnapshot(const Landing& landing) {
  if (!IsSource()) {
    snapshot_.Take(entries_, Snapshot::Copy::kAll);
    for (size_t i = 0; i < landing.entries.size(); ++i) {
      snapshot_.ReplaceValue(landing.entries[i], std::move(manifest_[i].value));
    }
  }
  ledger_.Hold(source_.commit);
}

}  // namespace muster::worker
