#include "launcher/session/lease.h"

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

using std::chrono::seconds;

constexpr Instant kStart = Instant(seconds(1000));

Instant At(int second) {
  return kStart + seconds(second);
}

}  // namespace

TEST_CASE("a lease counts from the sending of the last acknowledged summary") {
  Lease lease;
  lease.Renew(At(0));
  lease.SummarySent(1, At(1));
  lease.SummarySent(2, At(2));
  lease.SummarySent(3, At(3));
  lease.SummaryAcknowledged(2);  // However late it arrives.
  CHECK_FALSE(lease.Expired(At(12), seconds(10)));
  CHECK(lease.Expired(At(12) + Duration(1), seconds(10)));
  lease.SummaryAcknowledged(3);
  CHECK_FALSE(lease.Expired(At(13), seconds(10)));
  CHECK(lease.Expired(At(14), seconds(10)));
}

TEST_CASE("a lease is not renewed by an acknowledgement of nothing, nor by an old one") {
  Lease lease;
  lease.Renew(At(0));
  lease.SummaryAcknowledged(7);
  CHECK(lease.Expired(At(11), seconds(10)));
  lease.SummarySent(1, At(11));
  lease.SummarySent(2, At(12));
  lease.SummaryAcknowledged(2);
  lease.SummaryAcknowledged(1);
  CHECK_FALSE(lease.Expired(At(22), seconds(10)));
  CHECK(lease.Expired(At(23), seconds(10)));
}

TEST_CASE("a lease never goes back") {
  Lease lease;
  lease.Renew(At(5));
  lease.Renew(At(1));
  CHECK_FALSE(lease.Expired(At(15), seconds(10)));
}

TEST_CASE("a lease remembers a bounded number of summaries, the newest") {
  Lease lease;
  lease.Renew(At(0));
  for (uint64_t i = 1; i <= Lease::kSummariesMax + 10; ++i) {
    lease.SummarySent(i, At(static_cast<int>(i)));
  }
  lease.SummaryAcknowledged(5);  // Forgotten.
  CHECK(lease.Expired(At(11), seconds(10)));
  lease.SummaryAcknowledged(11);
  CHECK_FALSE(lease.Expired(At(21), seconds(10)));
}

}  // namespace muster::launcher
