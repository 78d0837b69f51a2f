#pragma once

// Links between sockets on one loop, which the test's thread runs.

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/link_acceptor.h"
#include "worker/link_dialer.h"

namespace muster::worker::test {

inline constexpr std::chrono::seconds kPatience{10};

/// One loop with one acceptor on it; the test's thread runs the loop until something holds.
struct Bench {
  Loop loop;
  std::string address;
  std::unique_ptr<LinkAcceptor> acceptor;

  Bench() { acceptor = NewAcceptor(address); }

  std::unique_ptr<LinkAcceptor> NewAcceptor(std::string& literal,
                                            std::optional<size_t> guests_max = std::nullopt) {
    auto created = std::make_unique<LinkAcceptor>(loop, guests_max);
    REQUIRE(created->Listen(ListenPlan{}).ok());
    literal = created->addresses().front();
    return created;
  }

  /// False: it did not hold within the time.
  bool RunUntil(std::function<bool()> holds, Duration patience = kPatience) {
    const Instant deadline = loop.Now() + patience;
    bool result = false;
    std::function<void()> look = [&] {
      result = holds();
      if (result || loop.Now() > deadline) {
        loop.Stop();
      } else {
        loop.After(std::chrono::milliseconds(1), look);
      }
    };
    look();
    loop.Run();
    return result;
  }
};

inline const LinkId kLink{{1}, 1, 0, LinkKind::kControl};

inline LinkDialer::Callbacks Into(std::optional<PrivateFd>& fd,
                                  std::string* unreachable = nullptr) {
  LinkDialer::Callbacks callbacks;
  callbacks.on_link = [&fd](PrivateFd link) { fd = std::move(link); };
  callbacks.on_unreachable = [unreachable](const LinkDialer::Unreachable& why) {
    if (unreachable != nullptr) {
      *unreachable = why.evidence;
    }
  };
  return callbacks;
}

inline PrivateFd Connect(const std::string& address) {
  return StartConnect(ParseAddress(address).value()).value();
}

inline bool IsClosed(int fd) {
  char byte = 0;
  return ReadSome(fd, &byte, 1) < 0;
}

}  // namespace muster::worker::test
