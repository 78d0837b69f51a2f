#include "worker/collective_setup.h"

#include <catch2/catch.hpp>
#include <cstring>

namespace muster::worker {
namespace {

using Hosts = std::vector<uint32_t>;
using Has = std::vector<bool>;

template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("collective setup chooses what suits the world") {
  const auto choose = [](Hosts hosts, Has has) {
    return ChooseBackend(BackendChoice::kAuto, hosts, has);
  };
  CHECK(choose({0}, {false}) == BackendKind::kGloo);
  CHECK(choose({0, 0}, {true, true}) == BackendKind::kShm);
  CHECK(choose({0, 0, 0}, {true, true, false}) == BackendKind::kGloo);
  CHECK(choose({0, 1}, {false, false}) == BackendKind::kGloo);
  CHECK(choose({0, 1, 1}, {false, true, true}) == BackendKind::kHierarchical);
  CHECK(choose({0, 0, 1}, {true, true, false}) == BackendKind::kHierarchical);
  CHECK(choose({0, 0, 1, 1}, {true, true, true, false}) == BackendKind::kGloo);
}

TEST_CASE("collective setup does what is forced, where it can be") {
  const Hosts one = {0, 0};
  const Hosts two = {0, 0, 1};
  CHECK(ChooseBackend(BackendChoice::kGloo, one, {true, true}) == BackendKind::kGloo);
  CHECK(ChooseBackend(BackendChoice::kGloo, two, {true, true, false}) == BackendKind::kGloo);
  CHECK(ChooseBackend(BackendChoice::kHierarchical, one, {true, true}) ==
        BackendKind::kHierarchical);
  CHECK(ChooseBackend(BackendChoice::kShm, one, {true, true}) == BackendKind::kShm);
  CHECK(ChooseBackend(BackendChoice::kShm, one, {true, false}) == BackendKind::kGloo);
}

TEST_CASE("collective setup reduces small data as the backends do") {
  Signature signature;
  signature.kind = OpKind::kAllreduce;
  signature.dtype = DType::kI32;
  signature.op = Op::kAverage;
  signature.shape = {3};
  const std::string first = Bytes<int32_t>({1, -1, 2'000'000'000});
  const std::string second = Bytes<int32_t>({1, -1, 2'000'000'000});
  // Rank 2 has joined: zeros, and it counts.
  CHECK(Values<int32_t>(ReduceSmall(signature, {&first, &second, nullptr}, 3)) ==
        std::vector<int32_t>{0, 0, 1'333'333'333});
  signature.op = Op::kSum;
  signature.prescale = 0.5;
  signature.dtype = DType::kF32;
  const std::string floats = Bytes<float>({2, 4, 6});
  CHECK(Values<float>(ReduceSmall(signature, {&floats, &floats}, 2)) ==
        std::vector<float>{2, 4, 6});
}

}  // namespace muster::worker
