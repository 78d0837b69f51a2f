#include "worker/core/dtype.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

namespace muster::worker {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

struct DTypeRow {
  DType dtype;
  const char* name;
  size_t size;
  bool is_floating;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kU8, "u8", 1, false},
    {DType::kI8, "i8", 1, false},
    {DType::kU16, "u16", 2, false},
    {DType::kI16, "i16", 2, false},
    {DType::kI32, "i32", 4, false},
    {DType::kI64, "i64", 8, false},
    {DType::kF16, "f16", 2, true},
    {DType::kBF16, "bf16", 2, true},
    {DType::kF32, "f32", 4, true},
    {DType::kF64, "f64", 8, true},
    {DType::kBool, "bool", 1, false},
};

struct ShapeRow {
  Shape shape;
  DType dtype;
  std::optional<int64_t> count;
};

}  // namespace

TEST_CASE("dtype has a size, a name and a kind for every value") {
  REQUIRE(std::size(kDTypes) == kDTypeCount);
  for (const DTypeRow& row : kDTypes) {
    INFO(row.name);
    CHECK(Name(row.dtype) == std::string(row.name));
    CHECK(ElementSize(row.dtype) == row.size);
    CHECK(IsFloating(row.dtype) == row.is_floating);
  }
}

TEST_CASE("dtype keeps the numbers that travel between workers") {
  for (size_t i = 0; i < std::size(kDTypes); ++i) {
    CHECK(static_cast<size_t>(kDTypes[i].dtype) == i);
  }
  CHECK(static_cast<int>(Op::kAverage) == 0);
  CHECK(static_cast<int>(Op::kSum) == 1);
  CHECK(static_cast<int>(Op::kAdasum) == 2);
  CHECK(static_cast<int>(Op::kMin) == 3);
  CHECK(static_cast<int>(Op::kMax) == 4);
  CHECK(static_cast<int>(Op::kProduct) == 5);
}

TEST_CASE("dtype of each size agrees with the type in C++") {
  CHECK(ElementSize(DType::kI32) == sizeof(int32_t));
  CHECK(ElementSize(DType::kI64) == sizeof(int64_t));
  CHECK(ElementSize(DType::kF32) == sizeof(float));
  CHECK(ElementSize(DType::kF64) == sizeof(double));
  CHECK(ElementSize(DType::kBool) == sizeof(bool));
}

TEST_CASE("reductions and operations have names") {
  CHECK(Name(Op::kAverage) == std::string("average"));
  CHECK(Name(Op::kSum) == std::string("sum"));
  CHECK(Name(Op::kAdasum) == std::string("adasum"));
  CHECK(Name(Op::kMin) == std::string("min"));
  CHECK(Name(Op::kMax) == std::string("max"));
  CHECK(Name(Op::kProduct) == std::string("product"));
  CHECK(static_cast<int>(Op::kProduct) + 1 == kOpCount);
  const char* const kinds[kOpKindCount] = {"allreduce",
                                           "allgather",
                                           "broadcast",
                                           "alltoall",
                                           "reducescatter",
                                           "barrier",
                                           "agreement",
                                           "join",
                                           "add_process_set",
                                           "remove_process_set"};
  for (uint8_t kind = 0; kind < kOpKindCount; ++kind) {
    CHECK(Name(static_cast<OpKind>(kind)) == std::string(kinds[kind]));
  }
  CHECK(static_cast<int>(OpKind::kRemoveSet) + 1 == kOpKindCount);
  CHECK(Name(BackendKind::kShm) == std::string("shm"));
  CHECK(Name(BackendKind::kHierarchical) == std::string("hierarchical"));
  CHECK(Name(BackendKind::kGloo) == std::string("gloo"));
  CHECK(static_cast<int>(BackendKind::kGloo) + 1 == kBackendKindCount);
}

TEST_CASE("no two values of an enum share a name") {
  std::set<std::string> names;
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    names.insert(Name(static_cast<DType>(i)));
  }
  CHECK(names.size() == kDTypeCount);
  names.clear();
  for (uint8_t i = 0; i < kOpCount; ++i) {
    names.insert(Name(static_cast<Op>(i)));
  }
  CHECK(names.size() == kOpCount);
}

TEST_CASE("element count multiplies the sizes and knows the empty shapes") {
  const ShapeRow rows[] = {
      {{}, DType::kF32, 1},
      {{7}, DType::kF32, 7},
      {{3, 4, 5}, DType::kU8, 60},
      {{0}, DType::kF64, 0},
      {{3, 0, 5}, DType::kF64, 0},
      {{0, kMax, kMax}, DType::kF64, 0},
      {{kMax, kMax, 0}, DType::kF64, 0},
      {{kMax, 0}, DType::kF64, 0},
  };
  for (const ShapeRow& row : rows) {
    INFO(ToString(row.shape));
    CHECK(ElementCount(row.shape, row.dtype) == row.count);
  }
}

TEST_CASE("element count refuses negative sizes, also beside a zero or an overflow") {
  for (const Shape& shape : {Shape{-1},
                             Shape{3, -1},
                             Shape{-2, -3},
                             Shape{0, -1},
                             Shape{-1, 0},
                             Shape{kMax, kMax, -1}}) {
    INFO(ToString(shape));
    CHECK_FALSE(ElementCount(shape, DType::kU8).has_value());
  }
}

TEST_CASE("element count takes what fits 63 bits in bytes and nothing more") {
  for (const DTypeRow& row : kDTypes) {
    INFO(row.name);
    const int64_t most = kMax / static_cast<int64_t>(row.size);
    CHECK(ElementCount({most}, row.dtype) == most);
    CHECK(ElementCount({1, most, 1}, row.dtype) == most);
    CHECK_FALSE(ElementCount({most, 2}, row.dtype).has_value());
    if (row.size > 1) {
      CHECK_FALSE(ElementCount({most + 1}, row.dtype).has_value());
    }
  }
  CHECK_FALSE(ElementCount({int64_t{1} << 32, int64_t{1} << 31}, DType::kU8).has_value());
  CHECK(ElementCount({int64_t{1} << 31, int64_t{1} << 31}, DType::kU8) == int64_t{1} << 62);
}

TEST_CASE("shape is written in brackets") {
  CHECK(ToString(Shape{}) == "[]");
  CHECK(ToString(Shape{5}) == "[5]");
  CHECK(ToString(Shape{2, 0, -3}) == "[2, 0, -3]");
}

}  // namespace muster::worker
