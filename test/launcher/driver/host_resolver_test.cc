#include "launcher/driver/host_resolver.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "common/network.h"
#include "test/support/loop_awaiter.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;

TEST_CASE("loopback names and literals and the own name are hosts of this machine") {
  char own[256] = {};
  REQUIRE(::gethostname(own, sizeof own - 1) == 0);
  const std::string name = own;
  for (const std::string& local : {std::string("localhost"),
                                   std::string("LOCALHOST"),
                                   std::string("127.0.0.1"),
                                   std::string("127.0.1.1"),
                                   std::string("::1"),
                                   name,
                                   name.substr(0, name.find('.'))}) {
    INFO(local);
    CHECK(IsThisMachineAtOnce(local) == true);
  }
  for (const InterfaceAddress& address : LocalAddresses()) {
    CHECK(IsThisMachineAtOnce(address.literal) == true);
  }
}

TEST_CASE("literals of others are not hosts of this machine, and names are to be looked up") {
  CHECK(IsThisMachineAtOnce("192.0.2.1") == false);
  CHECK(IsThisMachineAtOnce("2001:db8::1") == false);
  CHECK(IsThisMachineAtOnce("worker-1.example") == std::nullopt);
  CHECK(IsThisMachineAtOnce("") == std::nullopt);
}

TEST_CASE("look-up finds names of this machine, and takes unknown ones for others'") {
  CHECK(LookUpIsThisMachine("localhost"));
  CHECK(LookUpIsThisMachine("127.0.0.1"));
  CHECK_FALSE(LookUpIsThisMachine("192.0.2.1"));
  CHECK_FALSE(LookUpIsThisMachine(""));
}

// A name service that answers when the test says so. The threads of the resolver share it.
class NameService {
 public:
  struct State {
    Mutex mutex;
    CondVar changed;
    std::set<std::string> hanging MUSTER_GUARDED_BY(mutex);
    std::vector<std::string> asked MUSTER_GUARDED_BY(mutex);
    int inside MUSTER_GUARDED_BY(mutex) = 0;
  };

  ~NameService() {
    Answer();
    const MutexLock lock(state_->mutex);
    while (state_->inside > 0) {
      state_->changed.Wait(state_->mutex);
    }
  }

  /// Names that begin with "hang" are not answered until Answer; "own..." is this machine.
  HostResolver::LookUp LookUp() {
    return [state = state_](const std::string& name) {
      const MutexLock lock(state->mutex);
      state->asked.push_back(name);
      ++state->inside;
      if (name.starts_with("hang")) {
        state->hanging.insert(name);
      }
      state->changed.NotifyAll();
      while (state->hanging.contains(name)) {
        state->changed.Wait(state->mutex);
      }
      --state->inside;
      state->changed.NotifyAll();
      return name.starts_with("own");
    };
  }
  void Answer() {
    const MutexLock lock(state_->mutex);
    state_->hanging.clear();
    state_->changed.NotifyAll();
  }
  void AwaitAsked(size_t count) {
    const MutexLock lock(state_->mutex);
    while (state_->asked.size() < count) {
      state_->changed.Wait(state_->mutex);
    }
  }
  size_t asked() {
    const MutexLock lock(state_->mutex);
    return state_->asked.size();
  }

 private:
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class Resolution {
 public:
  explicit Resolution(Duration patience = std::chrono::hours(1)) : awaiter_(loop) {
    resolver = std::make_unique<HostResolver>(loop, patience, names.LookUp());
  }

  void Resolve(const std::string& host) {
    resolver->Resolve({host}, [this, host](bool this_machine) {
      answers.emplace_back(host, this_machine);
      awaiter_.Changed();
    });
  }
  bool Await(size_t count) {
    return awaiter_.Await([&] { return answers.size() >= count; });
  }

  Loop loop;
  NameService names;
  std::unique_ptr<HostResolver> resolver;
  std::vector<std::pair<std::string, bool>> answers;

 private:
  LoopAwaiter awaiter_;
};

using Answers = std::vector<std::pair<std::string, bool>>;

TEST_CASE("host resolver answers later, on the loop, even what it knows at once") {
  Resolution resolution;
  resolution.Resolve("localhost");
  CHECK(resolution.answers.empty());
  REQUIRE(resolution.Await(1));
  CHECK(resolution.answers == Answers{{"localhost", true}});
  CHECK(resolution.names.asked() == 0);
}

TEST_CASE("host resolver looks names up") {
  Resolution resolution;
  resolution.Resolve("own-1.example");
  resolution.Resolve("other.example");
  REQUIRE(resolution.Await(2));
  std::sort(resolution.answers.begin(), resolution.answers.end());
  CHECK(resolution.answers == Answers{{"other.example", false}, {"own-1.example", true}});
}

TEST_CASE("host resolver lets a look-up that hangs delay its own host only") {
  Resolution resolution;
  resolution.Resolve("hang-1");
  resolution.names.AwaitAsked(1);
  resolution.Resolve("own-1");
  REQUIRE(resolution.Await(1));
  CHECK(resolution.answers == Answers{{"own-1", true}});
  resolution.names.Answer();
  REQUIRE(resolution.Await(2));
  CHECK(resolution.answers.back() == std::pair<std::string, bool>("hang-1", false));
}

TEST_CASE("host resolver takes a name that is not answered in time for another machine's") {
  Resolution resolution(milliseconds(20));
  resolution.Resolve("hang-own");
  REQUIRE(resolution.Await(1));
  CHECK(resolution.answers == Answers{{"hang-own", false}});
}

TEST_CASE("host resolver asks once for a name that several wait for") {
  Resolution resolution(milliseconds(20));
  resolution.Resolve("hang-1");
  resolution.names.AwaitAsked(1);
  resolution.Resolve("hang-1");
  REQUIRE(resolution.Await(2));
  resolution.Resolve("hang-1");
  REQUIRE(resolution.Await(3));
  CHECK(resolution.names.asked() == 1);
  resolution.names.Answer();
  // The thread is given back: the name is asked for anew, and answered.
  while (resolution.names.asked() == 1) {
    resolution.Resolve("hang-1");
    REQUIRE(resolution.Await(resolution.answers.size() + 1));
  }
  CHECK(resolution.names.asked() == 2);
}

TEST_CASE("host resolver has a bounded number of look-ups at a time") {
  Resolution resolution;
  for (size_t i = 0; i < kLookUpsMax; ++i) {
    resolution.Resolve("hang-" + std::to_string(i));
  }
  resolution.names.AwaitAsked(kLookUpsMax);
  resolution.Resolve("own-last");
  resolution.Resolve("localhost");
  REQUIRE(resolution.Await(1));
  CHECK(resolution.answers == Answers{{"localhost", true}});
  CHECK(resolution.names.asked() == kLookUpsMax);
  resolution.names.Answer();
  CHECK(resolution.Await(kLookUpsMax + 2));
  CHECK(resolution.names.asked() == kLookUpsMax + 1);
}

TEST_CASE("host resolver that is gone is not called by look-ups under way") {
  Resolution resolution;
  resolution.Resolve("hang-1");
  resolution.Resolve("localhost");
  resolution.names.AwaitAsked(1);
  resolution.resolver.reset();
  resolution.names.Answer();
  bool over = false;
  resolution.loop.After(Duration::zero(), [&] {
    over = true;
    resolution.loop.Stop();
  });
  resolution.loop.Run();
  CHECK(over);
  CHECK(resolution.answers.empty());
}

}  // namespace
}  // namespace muster::launcher
