#include "worker/collective_options.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "common/mutex.h"

namespace muster::worker {
namespace {

constexpr uint64_t kFusionBytesMax = uint64_t{1} << 40;
constexpr uint64_t kCacheCapacityMax = 1'000'000'000;
constexpr const char* kFusion = "HOROVOD_FUSION_THRESHOLD";
constexpr const char* kCache = "HOROVOD_CACHE_CAPACITY";
constexpr const char* kBackend = "MUSTER_CPU_OPERATIONS";
constexpr const char* kAffinity = "HOROVOD_THREAD_AFFINITY";
constexpr const char* kBlanks = " \t";

std::string_view FromEnvironment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before other threads.
  return value == nullptr ? "" : value;
}

template <class T>
std::optional<T> ParseWhole(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return !text.empty() && error == std::errc() && stopped == end ? std::optional(number)
                                                                 : std::nullopt;
}

template <class T>
Status ReadNumber(const char* name, uint64_t max, const char* unit, T& number) {
  const std::string_view text = FromEnvironment(name);
  if (text.empty()) {
    return Status::Ok();
  }
  const std::optional<uint64_t> given = ParseWhole<uint64_t>(text);
  if (!given || *given > max) {
    return Status::Invalid(std::string(name) + "=" + std::string(text) +
                           ": must be a whole number " + unit + "from 0 to " + std::to_string(max));
  }
  number = static_cast<T>(*given);
  return Status::Ok();
}

Status ReadBackend(BackendChoice& backend) {
  constexpr std::array<std::pair<std::string_view, BackendChoice>, 4> kChoices{{
      {"auto", BackendChoice::kAuto},
      {"shm", BackendChoice::kShm},
      {"hierarchical", BackendChoice::kHierarchical},
      {"gloo", BackendChoice::kGloo},
  }};
  const std::string_view text = FromEnvironment(kBackend);
  if (text.empty()) {
    return Status::Ok();
  }
  const auto* choice = std::find_if(
      kChoices.begin(), kChoices.end(), [&](const auto& entry) { return entry.first == text; });
  if (choice == kChoices.end()) {
    return Status::Invalid(std::string(kBackend) + "=" + std::string(text) +
                           ": must be auto, shm, hierarchical or gloo");
  }
  backend = choice->second;
  return Status::Ok();
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<int> ParseCores(std::string_view list) {
  std::vector<int> cores;
  if (Trim(list).empty()) {
    return cores;
  }
  for (bool more = true; more;) {
    const size_t comma = list.find(',');
    const std::optional<int> core = ParseWhole<int>(Trim(list.substr(0, comma)));
    cores.push_back(core && *core >= 0 ? *core : -1);
    more = comma != std::string_view::npos;
    list = more ? list.substr(comma + 1) : "";
  }
  return cores;
}

// Of all members of the host, so that all of them come to the same end.
Status CheckCores(std::span<const int> cores, int local_size) {
  if (cores.size() < static_cast<size_t>(local_size)) {
    return Status::Invalid("it has " + std::to_string(cores.size()) + " entries for " +
                           std::to_string(local_size) + " workers of this host");
  }
  const long count = std::min<long>(::sysconf(_SC_NPROCESSORS_CONF), CPU_SETSIZE);
  for (int i = 0; i < local_size; ++i) {
    const int core = cores[static_cast<size_t>(i)];
    if (core < 0) {
      return Status::Invalid("entry " + std::to_string(i) + " is not the number of a core");
    }
    if (core >= count) {
      return Status::Invalid("there is no core " + std::to_string(core) + ", only 0 to " +
                             std::to_string(count - 1));
    }
  }
  return Status::Ok();
}

// Of the calling thread, before it was pinned for the first time.
thread_local std::optional<cpu_set_t> unpinned;

Status Pin(int core) {
  cpu_set_t before;
  if (!unpinned && ::sched_getaffinity(0, sizeof before, &before) == 0) {
    unpinned = before;
  }
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  CPU_SET(core, &wanted);
  if (::sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
    return Status::Failed("core " + std::to_string(core) +
                          " cannot be used here: " + strerror(errno));
  }
  return Status::Ok();
}

void Unpin() {
  if (unpinned) {
    ::sched_setaffinity(0, sizeof *unpinned, &*unpinned);
  }
}

// Two threads of the process come here, in every world.
bool IsNews(const std::string& message) {
  static Mutex mutex;
  static std::string last;
  const MutexLock lock(mutex);
  return std::exchange(last, message) != message;
}

}  // namespace

Result<CollectiveOptions> ReadCollectiveOptions() {
  CollectiveOptions options;
  for (const Status& status :
       {ReadNumber(kFusion, kFusionBytesMax, "of bytes ", options.fusion_bytes),
        ReadNumber(kCache, kCacheCapacityMax, "", options.cache_capacity),
        ReadBackend(options.backend)}) {
    if (!status.ok()) {
      return status;
    }
  }
  options.affinity = ParseCores(FromEnvironment(kAffinity));
  return options;
}

Status ApplyThreadAffinity(std::span<const int> cores, int local_rank, int local_size) {
  if (cores.empty()) {
    return Status::Ok();
  }
  Status status = CheckCores(cores, local_size);
  // Every worker of the host sees the same list, so that one of them says what is wrong with it.
  const bool speaks = local_rank == 0 || status.ok();
  if (status.ok()) {
    status = Pin(cores[static_cast<size_t>(local_rank)]);
  }
  if (!status.ok()) {
    Unpin();
    if (speaks && IsNews(status.message())) {
      spdlog::warn("{}: {}; no thread is pinned", kAffinity, status.message());
    }
  }
  return status;
}

}  // namespace muster::worker
