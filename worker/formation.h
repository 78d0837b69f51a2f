#pragma once

// Formation: builds the links of one generation. Every rank opens its control link to rank 0 and
// announces itself, as soon as it knows whether it has memory in common with the others of its
// host; rank 0 answers with the table of all, which says what is going to move the data; unless
// that is shared memory alone, each rank then opens a data link to every lower rank. It decides
// nothing about membership: it reports which peers do not answer and goes on trying until it is
// destroyed by a newer order.
//
// Threads: the loop's. It must not be destroyed inside its own callbacks.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/loop.h"
#include "worker/collective_setup.h"
#include "worker/control_link.h"
#include "worker/control_messages.h"
#include "worker/core/process_sets.h"
#include "worker/link_acceptor.h"
#include "worker/link_dialer.h"
#include "worker/shm/segment.h"

namespace muster::worker {

struct FormationPlan {
  Generation generation;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string link_key;
  std::vector<std::string> coordinator;    // Where rank 0 listens.
  std::vector<std::string> own_addresses;  // Where this worker listens.
  uint64_t incarnation = 0;
  std::vector<uint32_t> hosts;  // Index of its host, by rank.
  BackendChoice backend = BackendChoice::kAuto;
  std::vector<SetRecord> sets;  // What this worker knows of the job's process sets.
  int32_t next_set_id = 1;
  /// Ranks of the sets that exist from the start of a job; only rank 0's count.
  std::vector<std::vector<int32_t>> first_sets;
};

struct FormedWorld {
  /// By rank. Rank 0 has one to every other; the others have only the one to rank 0. Paused.
  std::vector<std::unique_ptr<ControlLink>> control;
  /// By rank; none to oneself, and none at all for BackendKind::kShm.
  std::vector<PrivateFd> data;
  std::shared_ptr<Segment> segment;  // Null: none, or not used.
  BackendKind backend = BackendKind::kGloo;
  std::vector<uint32_t> hosts{0};  // By rank.
  ProcessSets sets = ProcessSets::OfSize(1);
};

class Formation {
 public:
  struct Callbacks {
    std::function<void(FormedWorld world)> on_formed;
    std::function<void(uint32_t suspect, const std::string& evidence)> on_broken;
  };

  /// `loop` and `acceptor` outlive the formation.
  Formation(Loop& loop, LinkAcceptor& acceptor, FormationPlan plan, Callbacks callbacks);
  ~Formation();

  void Start();
  /// Whether there is memory in common with the others of this host (null: none). Once; nothing is
  /// announced before.
  void SetSegment(std::shared_ptr<Segment> segment);

 private:
  void OnAccepted(LinkId id, PrivateFd fd);
  void AddControlLink(uint32_t rank, PrivateFd fd);
  void OnControlFrame(uint32_t rank, std::string_view frame);
  void OnAnnounce(uint32_t rank, Announce message);
  void AnnounceSelf();
  Announce OwnAnnounce() const;
  void CheckAnnounced();
  AddressTable MakeTable() const;
  ProcessSets FirstSets(const std::vector<uint64_t>& incarnations) const;
  bool Adopt(const AddressTable& table);
  void OnTable(const AddressTable& table);
  void Dial(uint32_t rank, LinkKind kind, const std::vector<std::string>& addresses);
  void CheckComplete();
  void ReportBroken(uint32_t rank, const std::string& evidence);

  Loop& loop_;
  LinkAcceptor& acceptor_;
  const FormationPlan plan_;
  const Callbacks callbacks_;
  FormedWorld world_;
  std::optional<std::shared_ptr<Segment>> segment_;  // Absent: not known yet.
  std::vector<std::optional<Announce>> announced_;   // Rank 0 only.
  std::optional<AddressTable> table_;
  bool complete_ = false;
  std::map<std::pair<uint32_t, LinkKind>, std::unique_ptr<LinkDialer>> dialers_;
  /// Links that came twice; destroyed with the formation, not inside their own callbacks.
  std::vector<std::unique_ptr<ControlLink>> replaced_;
};

}  // namespace muster::worker
