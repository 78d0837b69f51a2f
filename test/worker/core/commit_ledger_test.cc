#include "worker/core/commit_ledger.h"

#include <catch2/catch.hpp>

namespace muster::worker {
namespace {

using Held = std::vector<std::optional<CommitId>>;

TEST_CASE("a commit is numbered by the index of its agreement in the generation") {
  CommitLedger ledger;
  CHECK(ledger.Next(Generation{3}) == CommitId{3, 1});
  ledger.Posted(Generation{3});
  CHECK(ledger.Next(Generation{3}) == CommitId{3, 2});
  ledger.Posted(Generation{3});
  ledger.Posted(Generation{3});
  CHECK(ledger.Next(Generation{3}) == CommitId{3, 4});
}

TEST_CASE("a commit that posts no agreement gets the same number again") {
  CommitLedger ledger;
  ledger.Posted(Generation{1});
  CHECK(ledger.Next(Generation{1}) == CommitId{1, 2});
  CHECK(ledger.Next(Generation{1}) == CommitId{1, 2});
}

TEST_CASE("commit numbers start again with each generation") {
  CommitLedger ledger;
  ledger.Posted(Generation{1});
  ledger.Posted(Generation{1});
  CHECK(ledger.Next(Generation{4}) == CommitId{4, 1});
  ledger.Posted(Generation{4});
  CHECK(ledger.Next(Generation{4}) == CommitId{4, 2});
  // Three agreements went by while this rank had joined: the others count them, too.
  CHECK(ledger.Next(Generation{4}, 3) == CommitId{4, 5});
  CHECK(ledger.Next(Generation{5}, 1) == CommitId{5, 2});
}

TEST_CASE("a ledger holds what was last completed") {
  CommitLedger ledger;
  CHECK_FALSE(ledger.held());
  ledger.Hold({2, 0});
  ledger.Hold({2, 0});  // A sync to what one holds already.
  ledger.Hold({2, 5});
  ledger.Hold({3, 1});
  CHECK(ledger.held() == CommitId{3, 1});
}

TEST_CASE("the source is the lowest rank with the highest commit") {
  const Held held = {CommitId{2, 7}, CommitId{2, 8}, std::nullopt, CommitId{2, 8}};
  const SyncSource source = ChooseSource(held, Generation{3});
  CHECK(source.rank == 1);
  CHECK(source.commit == CommitId{2, 8});
  CHECK_FALSE(source.fresh);
  CHECK_FALSE(source.unanimous);
}

TEST_CASE("a newer generation beats a longer count") {
  const Held held = {CommitId{2, 900}, CommitId{3, 0}};
  CHECK(ChooseSource(held, Generation{4}).rank == 1);
}

TEST_CASE("rank 0 takes the first commit when nobody holds one") {
  const SyncSource source = ChooseSource({std::nullopt, std::nullopt}, Generation{5});
  CHECK(source.rank == 0);
  CHECK(source.commit == CommitId{5, 0});
  CHECK(source.fresh);
  CHECK_FALSE(source.unanimous);
}

TEST_CASE("a sync is unanimous only if every rank holds the newest commit") {
  CHECK(ChooseSource({CommitId{1, 2}, CommitId{1, 2}}, Generation{2}).unanimous);
  CHECK(ChooseSource({CommitId{1, 2}}, Generation{2}).unanimous);
  CHECK_FALSE(ChooseSource({CommitId{1, 2}, CommitId{1, 1}}, Generation{2}).unanimous);
  CHECK_FALSE(ChooseSource({CommitId{1, 2}, std::nullopt}, Generation{2}).unanimous);
}

TEST_CASE("a commit (g,0) is held as much as any other") {
  const SyncSource source = ChooseSource({std::nullopt, CommitId{1, 0}}, Generation{2});
  CHECK(source.rank == 1);
  CHECK_FALSE(source.fresh);
}

}  // namespace
}  // namespace muster::worker
