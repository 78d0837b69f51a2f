#include "kernels/reduce.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/half.h"
#include "kernels/levels.h"
#include "test/kernels/reduce_model.h"

namespace muster::kernels {
namespace {

using test::AnyValue;
using test::Buffer;
using test::ForEachType;
using test::Model;
using test::Same;
using test::TameValue;

constexpr ReduceOp kOps[] = {
    ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

struct FactorPair {
  double prescale;
  double postscale;
};
constexpr FactorPair kFactors[] = {{1, 1}, {0.5, 1}, {1, 3}, {0.3, -1.75}};

bool Refused(Element type, ReduceOp op) {
  return type == Element::kBool && op == ReduceOp::kAverage;
}

/// Runs the body once with the kernels of each level that this machine can run.
template <class Body>
void OnEachLevel(Body body) {
  for (const Level level : kLevels) {
    if (SelectLevel(level)) {
      INFO("level " << static_cast<int>(level));
      body();
    }
  }
}

// A case: some inputs at odd addresses, some of them null, reduced into a buffer of its own or
// onto one of them.
template <class T>
struct Inputs {
  Inputs(size_t input_count, size_t count, size_t seed) {
    test::Random random(seed);
    for (size_t k = 0; k < input_count; ++k) {
      buffers.emplace_back(count, (seed + 3 * k) % 8);
      for (size_t i = 0; i < count; ++i) {
        buffers[k].Set(i, random() % 16 == 0 ? AnyValue<T>(random) : TameValue<T>(random));
      }
      is_null.push_back(seed % 4 == 3 && random() % 3 == 0);
    }
  }

  std::vector<const void*> Pointers() {
    std::vector<const void*> pointers;
    for (size_t k = 0; k < buffers.size(); ++k) {
      pointers.push_back(is_null[k] ? nullptr : buffers[k].Data());
    }
    return pointers;
  }
  void ReadColumn(size_t index, std::vector<T>& values) const {
    values.resize(buffers.size());
    for (size_t k = 0; k < buffers.size(); ++k) {
      values[k] = is_null[k] ? T{} : buffers[k].At(index);
    }
  }
  std::vector<T> Expected(const ReducePlan& plan, size_t count) const {
    std::vector<T> expected(count);
    std::vector<T> column;
    for (size_t i = 0; i < count; ++i) {
      ReadColumn(i, column);
      expected[i] = Model(plan, column);
    }
    return expected;
  }

  std::vector<Buffer<T>> buffers;
  std::vector<bool> is_null;
};

template <class T>
void RequireEqual(const Buffer<T>& out, const std::vector<T>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!Same(out.At(i), expected[i])) {
      FAIL("element " << i << " is " << +test::Load(out.At(i)) << " instead of "
                      << +test::Load(expected[i]));
    }
  }
  REQUIRE(out.GuardsHold());
}

template <class T>
void CheckReduction(const ReducePlan& plan, size_t input_count, size_t count, size_t seed) {
  INFO("type " << static_cast<int>(plan.type) << " op " << static_cast<int>(plan.op) << " pre "
               << plan.prescale << " post " << plan.postscale << " inputs " << input_count
               << " count " << count << " seed " << seed);
  Inputs<T> original(input_count, count, seed);
  const std::vector<T> expected = original.Expected(plan, count);
  OnEachLevel([&] {
    Inputs<T> inputs = original;
    const std::vector<const void*> pointers = inputs.Pointers();
    const size_t place = seed % (input_count + 1);
    if (place < input_count && !inputs.is_null[place]) {
      ReduceMany(plan, pointers.data(), input_count, inputs.buffers[place].Data(), count);
      RequireEqual(inputs.buffers[place], expected);
    } else {
      Buffer<T> out(count, seed % 7);
      ReduceMany(plan, pointers.data(), input_count, out.Data(), count);
      RequireEqual(out, expected);
    }
  });
}

/// Visits every type with every operation on it and every pair of factors.
template <class Visit>
void ForEachPlan(Visit visit) {
  ForEachType([&](Element type, auto zero) {
    for (const ReduceOp op : kOps) {
      for (const FactorPair factors : kFactors) {
        if (!Refused(type, op)) {
          visit(ReducePlan{type, op, factors.prescale, factors.postscale, 1}, zero);
        }
      }
    }
  });
}

TEST_CASE("a reduction has the bits of its model, for every type, op, factor, size and address") {
  size_t seed = 0;
  ForEachPlan([&](ReducePlan plan, auto zero) {
    for (size_t input_count = 1; input_count <= 9; ++input_count) {
      plan.divisor = plan.op == ReduceOp::kAverage ? static_cast<int>(input_count) : 1;
      for (const size_t count : {0, 1, 2, 3, 5, 7}) {
        CheckReduction<decltype(zero)>(plan, input_count, count, ++seed);
      }
      const size_t counts[] = {127, 129, 1024};  // Each with every plan, in turns.
      CheckReduction<decltype(zero)>(plan, input_count, counts[input_count % 3], ++seed);
    }
  });
}

TEST_CASE("a reduction of more than a block has the bits of its model") {
  ForEachPlan([&](ReducePlan plan, auto zero) {
    if (plan.prescale == 1 && (plan.op == ReduceOp::kSum || plan.op == ReduceOp::kAverage)) {
      plan.divisor = plan.op == ReduceOp::kAverage ? 3 : 1;
      CheckReduction<decltype(zero)>(plan, plan.postscale == 1 ? 3 : 5, 100'003, 11);
    }
  });
}

TEST_CASE("a reduction of many inputs has the bits of its model") {
  for (const size_t input_count : {10, 11, 12, 13, 64}) {
    CheckReduction<float>({Element::kF32, ReduceOp::kSum}, input_count, 4099, input_count);
    CheckReduction<test::Half>(
        {Element::kF16, ReduceOp::kAverage, 1, 1, 64}, input_count, 4099, input_count);
    CheckReduction<int32_t>({Element::kI32, ReduceOp::kAverage, 1, 1, 64}, input_count, 4099, 2);
  }
}

TEST_CASE("widen, combine and narrow one after the other have the bits of a reduction") {
  size_t seed = 0;
  ForEachPlan([&](ReducePlan plan, auto zero) {
    using T = decltype(zero);
    plan.divisor = 3;
    for (const size_t count : {1, 7, 129, 1031}) {
      Inputs<T> inputs(3, count, ++seed);
      const std::vector<T> expected = inputs.Expected(plan, count);
      const size_t size = AccumulatorSize(plan);
      OnEachLevel([&] {
        const std::vector<const void*> pointers = inputs.Pointers();
        Buffer<T> out(count, seed % 5);
        Buffer<uint8_t> total(count * size, seed % 8);
        Buffer<uint8_t> next(count * size, (seed + 1) % 8);
        const std::vector<T> zeros(count);
        for (size_t k = 0; k < 3; ++k) {
          const void* in = pointers[k] == nullptr ? zeros.data() : pointers[k];
          Widen(plan, in, k == 0 ? total.Data() : next.Data(), count);
          if (k == 1) {  // Onto the left and onto the right.
            Combine(plan, total.Data(), total.Data(), next.Data(), count);
          } else if (k == 2) {
            Combine(plan, next.Data(), total.Data(), next.Data(), count);
          }
        }
        Narrow(plan, next.Data(), out.Data(), count);
        RequireEqual(out, expected);
        REQUIRE(total.GuardsHold());
        REQUIRE(next.GuardsHold());
      });
    }
  });
}

TEST_CASE("a sum of floats is close to the sum in double") {
  const ReducePlan plan{Element::kF32, ReduceOp::kAverage, 0.25, 3, 7};
  Inputs<float> inputs(7, 5000, 1);
  test::Random random(1);
  for (auto& buffer : inputs.buffers) {
    for (size_t i = 0; i < 5000; ++i) {
      buffer.Set(i, TameValue<float>(random));
    }
  }
  std::vector<float> out(5000);
  std::vector<float> column;
  ReduceMany(plan, inputs.Pointers().data(), 7, out.data(), out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    inputs.ReadColumn(i, column);
    const double sum = std::accumulate(column.begin(), column.end(), 0.0) * 0.25 * 3 / 7;
    REQUIRE(out[i] == Approx(sum).margin(1e-6));
  }
}

// ---------------------------------------------------------------- values by hand

template <class T>
std::vector<T> Reduced(const ReducePlan& plan, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) {
    pointers.push_back(input.data());
  }
  std::vector<T> first;
  OnEachLevel([&] {
    std::vector<T> out(inputs[0].size());
    ReduceMany(plan, pointers.data(), pointers.size(), out.data(), out.size());
    first = first.empty() ? out : first;
    REQUIRE(std::equal(out.begin(), out.end(), first.begin(), Same<T>));
  });
  return first;
}

template <class T>
using Vectors = std::vector<std::vector<T>>;

TEST_CASE("an average of f16 does not overflow on the way, but a sum does") {
  const std::vector<uint16_t> large{F16FromFloat(40000)};
  const Vectors<uint16_t> inputs{large, large, large, large};
  CHECK(Reduced<uint16_t>({Element::kF16, ReduceOp::kAverage, 1, 1, 4}, inputs) == large);
  CHECK(Reduced<uint16_t>({Element::kF16, ReduceOp::kSum}, inputs) ==
        std::vector<uint16_t>{0x7C00});
}

TEST_CASE("the smallest f16 values are added and not flushed to zero") {
  const std::vector<uint16_t> tiny{F16FromFloat(6e-8F)};
  REQUIRE(tiny[0] == 1);
  CHECK(Reduced<uint16_t>({Element::kF16, ReduceOp::kSum}, {tiny, tiny, tiny}) ==
        std::vector<uint16_t>{3});
  CHECK(Reduced<uint16_t>({Element::kF16, ReduceOp::kAverage, 1, 1, 2}, {tiny, tiny}) == tiny);
}

TEST_CASE("an average of integers is exact however large they are") {
  const ReducePlan two{Element::kI64, ReduceOp::kAverage, 1, 1, 2};
  const int64_t top = std::numeric_limits<int64_t>::max();
  const int64_t bottom = std::numeric_limits<int64_t>::min();
  CHECK(Reduced<int64_t>(
            two, {{(1LL << 62) + 1, top, bottom, top}, {(1LL << 62) + 3, top, bottom, bottom}}) ==
        std::vector<int64_t>{(1LL << 62) + 2, top, bottom, 0});
  CHECK(Reduced<uint8_t>({Element::kU8, ReduceOp::kAverage, 1, 1, 2}, {{200}, {100}}) ==
        std::vector<uint8_t>{150});
  CHECK(Reduced<int32_t>({Element::kI32, ReduceOp::kAverage, 1, 1, 3},
                         {{-1, 1}, {-1, 1}, {0, 0}}) == std::vector<int32_t>{0, 0});
}

TEST_CASE("an average of integers is multiplied by its postscale before it is divided") {
  // 49 * (2 / 49) is less than 2 in double.
  const ReducePlan plan{Element::kI32, ReduceOp::kAverage, 1, 2, 49};
  CHECK(Reduced<int32_t>(plan, {{40}, {9}}) == std::vector<int32_t>{2});
}

TEST_CASE("sums beyond 51 bits are divided exactly too") {
  const int32_t high = std::numeric_limits<int32_t>::max();
  const int32_t low = std::numeric_limits<int32_t>::min();
  const ReducePlan plan{Element::kI32, ReduceOp::kAverage, 4194304, 1, 4194304};
  CHECK(Reduced<int32_t>(plan, {{high, low, 1}, {-1, 1, 1}}) ==
        std::vector<int32_t>{high - 1, low + 1, 2});
}

TEST_CASE("sums of an average saturate where a prescale took the inputs beyond all bounds") {
  const int64_t top = std::numeric_limits<int64_t>::max();
  const ReducePlan wide{Element::kI64, ReduceOp::kAverage, 1e300, 1, 2};
  CHECK(Reduced<int64_t>(wide, {{1, -1, 1}, {1, -1, -1}}) ==
        std::vector<int64_t>{top, -top - 1, 0});
  const ReducePlan narrow{Element::kI16, ReduceOp::kAverage, 1e300, 1, 2};
  CHECK(Reduced<int16_t>(narrow, {{1, -1, 1}, {1, -1, -1}}) ==
        std::vector<int16_t>{32767, -32768, 0});
}

TEST_CASE("integer sums and products wrap") {
  const Vectors<int8_t> inputs{{100, -128, 16}, {100, -1, 16}};
  CHECK(Reduced<int8_t>({Element::kI8, ReduceOp::kSum}, inputs) ==
        std::vector<int8_t>{-56, 127, 32});
  CHECK(Reduced<int8_t>({Element::kI8, ReduceOp::kProduct}, inputs) ==
        std::vector<int8_t>{16, -128, 0});
  CHECK(Reduced<uint16_t>({Element::kU16, ReduceOp::kProduct}, {{65535}, {65535}}) ==
        std::vector<uint16_t>{1});
  const int64_t top = std::numeric_limits<int64_t>::max();
  CHECK(Reduced<int64_t>({Element::kI64, ReduceOp::kSum}, {{top}, {top}}) ==
        std::vector<int64_t>{-2});
}

TEST_CASE("integers are scaled in double, truncated toward zero and saturated") {
  CHECK(Reduced<int8_t>({Element::kI8, ReduceOp::kSum, 1, 0.5}, {{7, -7, 100, -100}}) ==
        std::vector<int8_t>{3, -3, 50, -50});
  CHECK(Reduced<int8_t>({Element::kI8, ReduceOp::kMax, 1, 10}, {{3, -3, 50, -50}}) ==
        std::vector<int8_t>{30, -30, 127, -128});
  CHECK(Reduced<uint8_t>({Element::kU8, ReduceOp::kSum, -1, 1}, {{5}}) == std::vector<uint8_t>{0});
  CHECK(Reduced<int64_t>({Element::kI64, ReduceOp::kSum, 4, 1}, {{1LL << 62}}) ==
        std::vector<int64_t>{std::numeric_limits<int64_t>::max()});
  const double nan = std::nan("");
  CHECK(Reduced<int32_t>({Element::kI32, ReduceOp::kSum, 1, nan}, {{5}, {6}}) ==
        std::vector<int32_t>{0});
}

TEST_CASE("scaling by a third rounds floats once") {
  const float third = 1.0F / 3;
  CHECK(Reduced<float>({Element::kF32, ReduceOp::kSum, 1, 1.0 / 3}, {{1, 10}}) ==
        std::vector<float>{third, 10 * third});
  CHECK(Reduced<uint16_t>({Element::kF16, ReduceOp::kSum, 1, 0.5}, {{F16FromFloat(3)}}) ==
        std::vector<uint16_t>{F16FromFloat(1.5F)});
}

TEST_CASE("minimum and maximum pass a NaN on from every place") {
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto out =
        Reduced<float>({Element::kF32, op}, {{nan, 1, 1, 1}, {1, nan, 2, 2}, {2, 2, nan, 3}});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(std::isnan(out[2]));
    CHECK(out[3] == (op == ReduceOp::kMin ? 1 : 3));
    const auto half = Reduced<uint16_t>({Element::kBF16, op}, {{0x7FC0, 0x3F80}, {0x3F80, 0x7FC0}});
    CHECK(half == std::vector<uint16_t>{0x7FC0, 0x7FC0});
  }
}

TEST_CASE("infinities stay, and cancel to NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto out = Reduced<float>({Element::kF32, ReduceOp::kAverage, 1, 1, 2},
                                  {{infinity, infinity}, {1, -infinity}});
  CHECK(out[0] == infinity);
  CHECK(std::isnan(out[1]));
}

TEST_CASE("booleans are combined by logic, whatever byte stands for true") {
  const Vectors<uint8_t> inputs{{0, 0, 2, 255}, {0, 1, 0, 7}};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    CHECK(Reduced<uint8_t>({Element::kBool, op}, inputs) == std::vector<uint8_t>{0, 1, 1, 1});
    CHECK(Reduced<uint8_t>({Element::kBool, op}, {inputs[0]}) == std::vector<uint8_t>{0, 0, 1, 1});
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    CHECK(Reduced<uint8_t>({Element::kBool, op}, inputs) == std::vector<uint8_t>{0, 0, 0, 1});
    CHECK(Reduced<uint8_t>({Element::kBool, op, 0, 1}, inputs) == std::vector<uint8_t>(4));
  }
}

TEST_CASE("null inputs are zeros, all of them too") {
  const std::vector<int32_t> some{-5, 5};
  const void* pointers[] = {nullptr, some.data(), nullptr};
  std::vector<int32_t> out{7, 7};
  ReduceMany({Element::kI32, ReduceOp::kMin}, pointers, 3, out.data(), 2);
  CHECK(out == std::vector<int32_t>{-5, 0});
  const void* nothing[] = {nullptr, nullptr, nullptr, nullptr, nullptr};
  for (size_t count = 1; count <= 5; ++count) {
    out = {7, 7};
    ReduceMany({Element::kI32, ReduceOp::kSum}, nothing, count, out.data(), 2);
    CHECK(out == std::vector<int32_t>{0, 0});
  }
}

TEST_CASE("a count of 0 touches nothing") {
  ForEachPlan([](const ReducePlan& plan, auto /*zero*/) {
    const void* pointers[] = {nullptr};
    ReduceMany(plan, pointers, 1, nullptr, 0);
    Widen(plan, nullptr, nullptr, 0);
    Combine(plan, nullptr, nullptr, nullptr, 0);
    Narrow(plan, nullptr, nullptr, 0);
  });
  AdasumCombine(Element::kF32, nullptr, nullptr, nullptr, 0);
}

TEST_CASE("accumulators have the sizes of their table") {
  ForEachPlan([](const ReducePlan& plan, auto zero) {
    using T = decltype(zero);
    size_t expected = sizeof(T);
    if (plan.type == Element::kF16 || plan.type == Element::kBF16) {
      expected = 4;
    } else if (std::is_integral_v<T> && plan.op == ReduceOp::kAverage) {
      expected = sizeof(T) == 8 ? 16 : 8;
    }
    CHECK(AccumulatorSize(plan) == expected);
  });
}

TEST_CASE("a reduction is direct where widen and narrow would copy") {
  CHECK(IsDirect({Element::kF32, ReduceOp::kSum}));
  CHECK(IsDirect({Element::kF64, ReduceOp::kMax}));
  CHECK(IsDirect({Element::kU8, ReduceOp::kProduct}));
  CHECK(IsDirect({Element::kF32, ReduceOp::kAverage, 1, 1, 1}));
  CHECK(IsDirect({Element::kF32, ReduceOp::kAverage, 1, 4, 4}));
  CHECK_FALSE(IsDirect({Element::kF32, ReduceOp::kAverage, 1, 1, 4}));
  CHECK_FALSE(IsDirect({Element::kF32, ReduceOp::kSum, 0.5, 1}));
  CHECK_FALSE(IsDirect({Element::kF32, ReduceOp::kSum, 1, 0.5}));
  CHECK_FALSE(IsDirect({Element::kF16, ReduceOp::kSum}));
  CHECK_FALSE(IsDirect({Element::kI32, ReduceOp::kAverage, 1, 1, 1}));
  CHECK_FALSE(IsDirect({Element::kI64, ReduceOp::kAverage, 1, 1, 1}));
  CHECK_FALSE(IsDirect({Element::kBool, ReduceOp::kSum}));  // Bytes become 0 or 1.
}

// ---------------------------------------------------------------- Adasum

template <class T>
std::vector<T> Adasum(Element type, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  AdasumCombine(type, out.data(), a.data(), b.data(), a.size());
  std::vector<T> left = a;
  AdasumCombine(type, left.data(), left.data(), b.data(), a.size());
  std::vector<T> right = b;
  AdasumCombine(type, right.data(), a.data(), right.data(), a.size());
  REQUIRE(left == out);
  REQUIRE(right == out);
  return out;
}

TEST_CASE("Adasum adds orthogonal vectors, averages equal ones and passes over zero") {
  const std::vector<float> a{3, 0, -1, 0, 0};
  const std::vector<float> b{0, 2, 0, 0, 5};
  CHECK(Adasum<float>(Element::kF32, a, b) == std::vector<float>{3, 2, -1, 0, 5});
  CHECK(Adasum<float>(Element::kF32, a, a) == a);
  CHECK(Adasum<float>(Element::kF32, a, std::vector<float>(5)) == a);
  CHECK(Adasum<float>(Element::kF32, std::vector<float>(5), b) == b);
  CHECK(Adasum<float>(Element::kF32, {0}, {0}) == std::vector<float>{0});
  const std::vector<uint16_t> half{F16FromFloat(60000), F16FromFloat(-6e-8F)};
  CHECK(Adasum<uint16_t>(Element::kF16, half, half) == half);
  const std::vector<uint16_t> brain{Bf16FromFloat(1e30F), Bf16FromFloat(3)};
  CHECK(Adasum<uint16_t>(Element::kBF16, brain, brain) == brain);
}

TEST_CASE("Adasum is its formula, for vectors of every length and on every level") {
  for (const size_t count : {1, 2, 7, 8, 9, 255, 256, 257, 5003}) {
    test::Random random(count);
    std::vector<double> a(count);
    std::vector<double> b(count);
    std::vector<float> single_a(count);
    std::vector<float> single_b(count);
    for (size_t i = 0; i < count; ++i) {
      single_a[i] = TameValue<float>(random);
      single_b[i] = TameValue<float>(random);
      a[i] = single_a[i];
      b[i] = single_b[i];
    }
    const double dot = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    const double a_factor = 1 - dot / (2 * std::inner_product(a.begin(), a.end(), a.begin(), 0.0));
    const double b_factor = 1 - dot / (2 * std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
    std::vector<std::vector<double>> results;
    OnEachLevel([&] {
      results.push_back(Adasum<double>(Element::kF64, a, b));
      const auto single = Adasum<float>(Element::kF32, single_a, single_b);
      for (size_t i = 0; i < count; ++i) {
        const double expected = a[i] * a_factor + b[i] * b_factor;
        REQUIRE(results.back()[i] == Approx(expected).margin(1e-12));
        REQUIRE(single[i] == Approx(expected).margin(1e-6));
      }
      REQUIRE(results.back() == results.front());
    });
  }
}

}  // namespace
}  // namespace muster::kernels
