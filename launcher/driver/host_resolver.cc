#include "launcher/driver/host_resolver.h"

#include <netdb.h>
#include <pthread.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/address.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/network.h"

namespace muster::launcher {
namespace {

bool EqualNames(const std::string& a, const std::string& b) {
  return ::strcasecmp(a.c_str(), b.c_str()) == 0;
}

std::string OwnName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool IsOwnAddress(const std::string& literal) {
  const std::vector<InterfaceAddress> own = LocalAddresses();
  return IsLoopbackHost(literal) ||
         std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& address) {
           return address.literal == literal;
         });
}

// Without port and brackets. IPv4 inside IPv6 comes out as IPv4.
std::string HostLiteral(const addrinfo& found) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(
          found.ai_addr, found.ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return {};
  }
  static constexpr std::string_view kMapped = "::ffff:";
  const std::string literal = text.data();
  return literal.starts_with(kMapped) && literal.find('.') != std::string::npos
             ? literal.substr(kMapped.size())
             : literal;
}

}  // namespace

std::optional<bool> IsThisMachineAtOnce(const std::string& name) {
  if (const Result<std::string> literal = CanonicalHost(name); literal.ok()) {
    return IsOwnAddress(literal.value());
  }
  const std::string own = OwnName();
  if (EqualNames(name, "localhost") || EqualNames(name, own) ||
      EqualNames(name, own.substr(0, own.find('.')))) {
    return true;
  }
  return std::nullopt;
}

// No AI_ADDRCONFIG: it hides the IPv4 address of a name that /etc/hosts puts on loopback from a
// machine whose interfaces have IPv6 only.
bool LookUpIsThisMachine(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) {
    return false;
  }
  bool own = false;
  for (const addrinfo* entry = list; entry != nullptr && !own; entry = entry->ai_next) {
    own = IsOwnAddress(HostLiteral(*entry));
  }
  ::freeaddrinfo(list);
  return own;
}

// What the threads may touch at any time. `owner` is changed by the loop thread only.
struct HostResolver::Shared {
  explicit Shared(HostResolver* resolver) : owner(resolver) {}

  Mutex mutex;
  HostResolver* owner MUSTER_GUARDED_BY(mutex);
};

HostResolver::HostResolver(Loop& loop, Duration patience, LookUp look_up)
    : loop_(loop),
      patience_(patience),
      look_up_(std::move(look_up)),
      shared_(std::make_shared<Shared>(this)) {}

// A thread inside getaddrinfo cannot be called back, and joining it would keep a driver that is to
// end for half a minute. So the threads are left alone: they own what they touch, through
// `shared_`.
HostResolver::~HostResolver() {
  for (const auto& [id, request] : requests_) {
    loop_.Cancel(request.patience);
  }
  const MutexLock lock(shared_->mutex);
  shared_->owner = nullptr;
}

void HostResolver::Resolve(const HostId& host, Callback callback) {
  const uint64_t id = next_request_++;
  if (const std::optional<bool> known = IsThisMachineAtOnce(host.value)) {
    const Loop::TimerId now = loop_.After(Duration::zero(), [this, id, local = *known] {
      const Callback answer = std::move(requests_.extract(id).mapped().callback);
      answer(local);
    });
    requests_.emplace(id, Request{host.value, std::move(callback), now});
    return;
  }
  const Loop::TimerId patience = loop_.After(patience_, [this, id] { OnPatienceOver(id); });
  requests_.emplace(id, Request{host.value, std::move(callback), patience});
  if (!running_.contains(host.value)) {
    waiting_.push_back(host.value);
    StartLookUps();
  }
}

void HostResolver::StartLookUps() {
  while (!waiting_.empty() && running_.size() < kLookUpsMax) {
    const std::string name = std::move(waiting_.front());
    waiting_.pop_front();
    const bool wanted = std::any_of(requests_.begin(), requests_.end(), [&](const auto& entry) {
      return entry.second.name == name;
    });
    if (!wanted || !running_.insert(name).second) {
      continue;
    }
    try {
      std::thread([shared = shared_, look_up = look_up_, name] {
        ::pthread_setname_np(::pthread_self(), "look-up");
        const bool local = look_up(name);
        const MutexLock lock(shared->mutex);  // The owner, and with it the loop, stays for as long.
        if (shared->owner == nullptr) {
          return;
        }
        shared->owner->loop_.Post([shared, name, local] {
          HostResolver* owner = nullptr;
          {
            const MutexLock again(shared->mutex);
            owner = shared->owner;
          }
          if (owner != nullptr) {
            owner->OnAnswer(name, local);
          }
        });
      }).detach();
    } catch (const std::system_error& error) {
      running_.erase(name);  // Its patience runs.
      spdlog::warn("no thread to look up host {}: {}", name, error.what());
    }
  }
}

void HostResolver::OnAnswer(const std::string& name, bool this_machine) {
  running_.erase(name);
  std::vector<Callback> callbacks;
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.name != name) {
      ++it;
      continue;
    }
    loop_.Cancel(it->second.patience);
    callbacks.push_back(std::move(it->second.callback));
    it = requests_.erase(it);
  }
  StartLookUps();
  for (const Callback& callback : callbacks) {
    callback(this_machine);
  }
}

void HostResolver::OnPatienceOver(uint64_t id) {
  const Request request = std::move(requests_.extract(id).mapped());
  spdlog::warn("host {}: the look-up of its name takes too long; it is taken for another machine",
               request.name);
  request.callback(false);
}

}  // namespace muster::launcher
