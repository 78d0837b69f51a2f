#include "bench/measure.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace muster::bench {
namespace {

// Where iterations are slow, an order's timed parts stop at about this.
constexpr double kOrderNs = 2e9;
constexpr int kIterationsMin = 3;
constexpr int kWarmups = 2;
// Iterations whose times only tell how many can be afforded.
constexpr int kPilot = 3;

// Gives one order; what counts of its reports: see Measure.
Result<std::vector<int64_t>> TimesOf(const Case& measured,
                                     const Entrant& entrant,
                                     const Plan& plan,
                                     int iterations,
                                     const Progress& progress) {
  const Order order{.operation = measured.operation,
                    .bytes = measured.bytes,
                    .tensors = measured.tensors,
                    .iterations = iterations,
                    .warmups = kWarmups,
                    .pace = measured.pace,
                    .algorithm = entrant.algorithm,
                    .offset = plan.offset};
  progress(entrant.group->name() + ": " + Describe(order));
  const Result<std::vector<Report>> reports = entrant.group->Execute(order, plan.timeout);
  if (!reports.ok()) {
    return reports.status();
  }
  std::vector<int64_t> times = reports.value().front().times_ns;
  if (measured.operation == Operation::kBroadcast) {
    for (const Report& report : reports.value()) {
      for (size_t i = 0; i < times.size() && i < report.times_ns.size(); ++i) {
        times[i] = std::max(times[i], report.times_ns[i]);
      }
    }
  }
  return times;
}

// As many as the plan says; else those of the size, as far as they fit into the time that an order
// may take, by a few of them.
Result<int> AffordableIterations(const Case& measured,
                                 const Entrant& entrant,
                                 const Plan& plan,
                                 const Progress& progress) {
  if (plan.iterations > 0) {
    return plan.iterations;
  }
  const int wished = IterationsFor(measured.bytes, measured.tensors);
  Result<std::vector<int64_t>> times = TimesOf(measured, entrant, plan, kPilot, progress);
  if (!times.ok()) {
    return times.status();
  }
  std::sort(times.value().begin(), times.value().end());
  const auto middle = static_cast<double>(times.value()[times.value().size() / 2]);
  return std::clamp(static_cast<int>(std::min(kOrderNs / std::max(1.0, middle), 1e6)),
                    std::min(kIterationsMin, wished),
                    wished);
}

}  // namespace

double Timing::Microseconds(double quantile) const {
  MUSTER_CHECK(!times_ns.empty(), "a timing without times");
  const auto last = static_cast<double>(times_ns.size() - 1);
  return static_cast<double>(times_ns[static_cast<size_t>(std::lround(quantile * last))]) / 1e3;
}

int IterationsFor(size_t bytes, int tensors) {
  const size_t total = bytes * static_cast<size_t>(tensors);
  if (tensors > 1) {
    return 10;
  }
  if (total <= 4 << 10) {
    return 200;
  }
  if (total <= 64 << 10) {
    return 100;
  }
  if (total <= 1 << 20) {
    return 30;
  }
  return total <= 16 << 20 ? 10 : kIterationsMin;
}

Result<std::vector<Timing>> Measure(const Case& measured,
                                    const std::vector<Entrant>& entrants,
                                    const Plan& plan,
                                    const Progress& progress) {
  std::vector<Timing> timings;
  std::vector<int> iterations;
  for (const Entrant& entrant : entrants) {
    timings.push_back(
        {.contestant = entrant.contestant, .algorithm = entrant.algorithm, .times_ns = {}});
    const Result<int> affordable = AffordableIterations(measured, entrant, plan, progress);
    if (!affordable.ok()) {
      return affordable.status();
    }
    iterations.push_back(affordable.value());
  }
  for (int round = 0; round < plan.rounds; ++round) {
    const std::string when =
        "round " + std::to_string(round + 1) + " of " + std::to_string(plan.rounds);
    for (size_t i = 0; i < entrants.size(); ++i) {
      const Result<std::vector<int64_t>> times =
          TimesOf(measured, entrants[i], plan, iterations[i], [&](const std::string& what) {
            progress(what + ", " + when);
          });
      if (!times.ok()) {
        return times.status();
      }
      timings[i].times_ns.insert(
          timings[i].times_ns.end(), times.value().begin(), times.value().end());
    }
  }
  for (Timing& timing : timings) {
    std::sort(timing.times_ns.begin(), timing.times_ns.end());
  }
  return timings;
}

Result<std::unique_ptr<Field>> Field::Start(const std::vector<Contestant>& contestants,
                                            Launch launch,
                                            const Plan& plan,
                                            const Progress& progress) {
  Result<TempDirectory> directory = TempDirectory::Make();
  if (!directory.ok()) {
    return directory.status();
  }
  std::unique_ptr<Field> field(new Field(std::move(directory).value()));
  launch.directory = field->directory_.path();
  for (const Contestant contestant : contestants) {
    Result<GroupSpec> spec = SpecOf(contestant, launch);
    if (!spec.ok() && spec.status().code() == StatusCode::kUnavailable) {
      field->absent_.push_back(Name(contestant) + ": " + spec.status().message());
      continue;
    }
    if (!spec.ok()) {
      return spec.status();
    }
    progress("starting " + Name(contestant) + " with " + std::to_string(launch.ranks) + " ranks");
    Result<std::unique_ptr<RankGroup>> group =
        RankGroup::Start(std::move(spec).value(), plan.timeout);
    if (!group.ok()) {
      return group.status();
    }
    field->members_.push_back({.contestant = contestant, .group = std::move(group).value()});
  }
  return field;
}

std::vector<Entrant> Field::EntrantsFor(Operation operation, Pace pace) const {
  std::vector<Entrant> entrants;
  for (const Member& member : members_) {
    for (const std::string& algorithm : Algorithms(member.contestant, operation, pace)) {
      entrants.push_back(
          {.contestant = member.contestant, .algorithm = algorithm, .group = member.group.get()});
    }
  }
  return entrants;
}

RankGroup* Field::group(Contestant contestant) const {
  for (const Member& member : members_) {
    if (member.contestant == contestant) {
      return member.group.get();
    }
  }
  return nullptr;
}

}  // namespace muster::bench
