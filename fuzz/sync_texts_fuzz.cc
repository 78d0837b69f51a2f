// The texts that ranks exchange in a sync, as a broken or hostile peer would send them: whatever
// the collectives bring is either understood or ends in Error.

#include <stdexcept>

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "worker/elastic_transfer.h"
#include "worker/operation.h"

namespace muster::worker {
namespace {

/// Completes each collective at once, with the input's bytes as the result.
class InventedRuntime final : public Runtime {
 public:
  explicit InventedRuntime(fuzz::FuzzInput input) : input_(input) {
    place_.size = static_cast<int>(1 + input_.Below(4));
  }

  Handle Submit(Submission submission) override {
    if (submission.kind == OpKind::kAllgather) {
      const std::string_view bytes = input_.Text();
      void* to = submission.allocate({static_cast<int64_t>(bytes.size())}, DType::kU8, {});
      std::copy(bytes.begin(), bytes.end(), static_cast<char*>(to));
    } else {
      const auto room = static_cast<size_t>(submission.out.shape.at(0));
      const std::string_view bytes = input_.Piece(room);
      std::copy(bytes.begin(), bytes.end(), static_cast<char*>(submission.out.data));
      if (submission.name.starts_with("text.size")) {
        Temper(static_cast<uint64_t*>(submission.out.data));
      }
    }
    auto operation = std::make_shared<Operation>();
    MUSTER_CHECK(!operation->Complete(nullptr), "nobody waits for it yet");
    return Handle(std::move(operation));
  }
  const Place& place() const override { return place_; }

  void Init(const std::vector<std::vector<int>>&) override {}
  void Shutdown() override {}
  const Trace& trace() const override { return trace_; }
  Handle SubmitGroup(std::vector<Submission>) override { throw Error("not submitted here"); }
  int64_t Value(Handle&) override { return 0; }
  std::vector<int> SetRanks(ProcessSet) const override { return {}; }
  std::vector<ProcessSet> Sets() const override { return {}; }
  uint64_t JoinedAgreements() const override { return 0; }
  bool PendingChange() const override { return false; }
  void EnterElastic() override {}
  void SetHeld(std::optional<CommitId>) override {}
  void Leave() override {}
  Awaited AwaitWorld() override { return Awaited::kWorld; }
  void ReportSynced(CommitId) override {}
  void ReportDone() override {}

 private:
  // A length that is allowed costs its memory, which takes its time: what is refused stays.
  static void Temper(uint64_t* length) {
    if (*length <= kTextBytesMax) {
      *length %= 1 << 16;
    }
  }

  fuzz::FuzzInput input_;
  Place place_;
  const Trace trace_{""};
};

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::worker;
  try {
    InventedRuntime runtime({data, size});
    const auto texts = GatherTexts(runtime, "texts", "mine");
    MUSTER_CHECK_EQ(texts.size(), static_cast<size_t>(runtime.place().size));
  } catch (const muster::Error&) {  // Allowed: what came does not parse.
  }
  try {
    InventedRuntime runtime({data, size});
    (void)BroadcastText(runtime, "text", 0, "");
  } catch (const muster::Error&) {
  }
  return 0;
}
