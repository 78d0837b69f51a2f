#include "launcher/chaos/undoer.h"

#include <catch2/catch.hpp>
#include <future>
#include <vector>

namespace muster::launcher {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr auto kLimit = seconds(30);

TEST_CASE("what is due is undone while the caller waits") {
  Undoer undoer;
  std::promise<void> undone;
  undoer.At(SteadyClock().Now(), [&undone] { undone.set_value(); });
  CHECK(undone.get_future().wait_for(kLimit) == std::future_status::ready);
}

TEST_CASE("what is due first is undone first, whatever came first") {
  Undoer undoer;
  const Instant now = SteadyClock().Now();
  std::vector<int> order;
  std::promise<void> both;
  undoer.At(now + hours(2), [&] {
    order.push_back(2);
    both.set_value();
  });
  undoer.At(now + hours(1), [&] { order.push_back(1); });
  undoer.UndoAll();
  REQUIRE(both.get_future().wait_for(kLimit) == std::future_status::ready);
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("what comes after all was due is undone at once") {
  Undoer undoer;
  undoer.UndoAll();
  std::promise<void> undone;
  undoer.At(SteadyClock().Now() + hours(1), [&undone] { undone.set_value(); });
  CHECK(undone.get_future().wait_for(kLimit) == std::future_status::ready);
}

TEST_CASE("what is left is undone at the end") {
  bool undone = false;
  {
    Undoer undoer;
    undoer.At(SteadyClock().Now() + hours(1), [&undone] { undone = true; });
  }
  CHECK(undone);
}

}  // namespace
}  // namespace muster::launcher
