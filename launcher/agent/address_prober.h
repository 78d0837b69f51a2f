#pragma once

// AddressProber: finds which of the driver's addresses can be reached from here, by connecting to
// all of them at once. It sends nothing: who answers there, TLS will tell. The local end of a
// connection that came about is the address at which others reach this host.
//
// Threads: the loop's. It may be destroyed inside its own callbacks.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/unique_fd.h"

namespace muster::launcher {

class AddressProber {
 public:
  struct Reached {
    std::string driver;  // Literal with port, as given.
    std::string own;     // Host literal of the local end.
  };
  struct Callbacks {
    std::function<void(const Reached&)> reached;  // For each address at most once.
    /// All have answered, or the time is up. The first reason why one did not; may be empty.
    std::function<void(const std::string& why)> done;
  };

  AddressProber(Loop& loop, std::vector<std::string> literals, Callbacks callbacks);
  ~AddressProber();
  AddressProber(const AddressProber&) = delete;
  AddressProber& operator=(const AddressProber&) = delete;

  void Start();

  static constexpr Duration kDeadline = std::chrono::seconds(2);

 private:
  void Connect(const std::string& literal);
  void OnConnected(int fd);
  void Fail(const std::string& literal, int error);
  void Finish();

  Loop& loop_;
  const std::vector<std::string> literals_;
  const Callbacks callbacks_;
  struct Attempt {
    UniqueFd fd;
    std::string literal;
  };
  std::map<int, Attempt> attempts_;
  std::string why_;
  Loop::TimerId timer_;
};

}  // namespace muster::launcher
