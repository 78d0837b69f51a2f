#pragma once

// Formation: builds the links of one generation. Every rank opens its control link to rank 0 and
// announces where it listens; rank 0 answers with the table of all; then each rank opens a data
// link to every lower rank. It decides nothing about membership: it reports which peers do not
// answer and goes on trying until it is destroyed by a newer order.
//
// Threads: the loop's. It must not be destroyed inside its own callbacks.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/loop.h"
#include "worker/control_link.h"
#include "worker/control_messages.h"
#include "worker/link_acceptor.h"
#include "worker/link_dialer.h"

namespace muster::worker {

struct FormationPlan {
  Generation generation;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string link_key;
  std::vector<std::string> coordinator;    // Where rank 0 listens.
  std::vector<std::string> own_addresses;  // Where this worker listens.
};

struct FormedLinks {
  /// By rank. Rank 0 has one to every other; the others have only the one to rank 0. Paused.
  std::vector<std::unique_ptr<ControlLink>> control;
  /// By rank; none to oneself.
  std::vector<PrivateFd> data;
};

class Formation {
 public:
  struct Callbacks {
    std::function<void(FormedLinks links)> on_formed;
    std::function<void(uint32_t suspect, const std::string& evidence)> on_broken;
  };

  /// `loop` and `acceptor` outlive the formation.
  Formation(Loop& loop, LinkAcceptor& acceptor, FormationPlan plan, Callbacks callbacks);
  ~Formation();

  void Start();

 private:
  void OnAccepted(LinkId id, PrivateFd fd);
  void AddControlLink(uint32_t rank, PrivateFd fd);
  void OnControlFrame(uint32_t rank, std::string_view frame);
  void OnAnnounce(uint32_t rank, Announce message);
  void OnTable(const AddressTable& table);
  void Dial(uint32_t rank, LinkKind kind, const std::vector<std::string>& addresses);
  void CheckComplete();
  void ReportBroken(uint32_t rank, const std::string& evidence);

  Loop& loop_;
  LinkAcceptor& acceptor_;
  const FormationPlan plan_;
  const Callbacks callbacks_;
  FormedLinks links_;
  std::vector<std::vector<std::string>> announced_;  // Rank 0 only.
  bool has_table_ = false;
  bool complete_ = false;
  std::map<std::pair<uint32_t, LinkKind>, std::unique_ptr<LinkDialer>> dialers_;
  /// Links that came twice; destroyed with the formation, not inside their own callbacks.
  std::vector<std::unique_ptr<ControlLink>> replaced_;
};

}  // namespace muster::worker
