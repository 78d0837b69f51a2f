#include "test/sim/job/connection.h"

#include "test/sim/job/site.h"

namespace muster::sim {
namespace {

using launcher::AgentSessions;
using launcher::AgentStream;

constexpr Duration kConnectPatience = std::chrono::seconds(2);

}  // namespace

class Connection::Stream final : public AgentStream {
 public:
  explicit Stream(std::weak_ptr<Connection> connection) : connection_(std::move(connection)) {}

  void Send(const v1::AgentOrder& order) override {
    if (const auto connection = connection_.lock(); connection != nullptr && !closed_) {
      connection->down_->Push([connection, order] {
        if (connection->client_.loop != nullptr) {
          connection->client_.loop->Post([connection, order] {
            if (connection->client_.order) {
              connection->client_.order(order);
            }
          });
        }
      });
      connection->MayBreak();
    }
  }

  void Close(const grpc::Status& status) override {
    if (const auto connection = connection_.lock();
        connection != nullptr && !std::exchange(closed_, true)) {
      connection->down_->Push([connection, status] { connection->TellClient(status); });
      connection->TellDriver();
    }
  }

 private:
  const std::weak_ptr<Connection> connection_;
  bool closed_ = false;
};

Connection::Connection(Site& site, std::string machine, Client client)
    : site_(site),
      machine_(std::move(machine)),
      client_(std::move(client)),
      up_(std::make_shared<Flow>(site.universe, site.network, machine_, kDriverMachine)),
      down_(std::make_shared<Flow>(site.universe, site.network, kDriverMachine, machine_)) {}

void Connection::Open() {
  stream_ = std::make_shared<Stream>(weak_from_this());
  if (!site_.driver) {
    over_ = true;
    down_->Push([self = shared_from_this()] {
      self->TellClient({grpc::StatusCode::UNAVAILABLE, "connection refused"});
    });
  } else if (!site_.network.Connected(machine_, kDriverMachine)) {
    site_.universe.At(kConnectPatience, [self = shared_from_this()] {
      if (!self->site_.network.Connected(self->machine_, kDriverMachine)) {
        self->over_ = true;
        self->TellClient({grpc::StatusCode::UNAVAILABLE, "failed to connect"});
      }
    });
  }
}

void Connection::Send(v1::AgentReport report) {
  up_->Push([self = shared_from_this(), report = std::move(report)] {
    if (self->over_ || !self->site_.driver) {
      return;
    }
    const DriverPort& driver = *self->site_.driver;
    driver.loop->Post([sessions = driver.sessions, self, report] {
      sessions->HandleReport(self->stream_, report);
    });
  });
  MayBreak();
}

// With what is under way on it. A stream within one machine breaks with its processes only.
void Connection::MayBreak() {
  if (machine_ != kDriverMachine && site_.universe.Below(1000) < site_.stream_breaks) {
    site_.universe.Note("a stream of " + machine_ + " breaks");
    Break();
  }
}

void Connection::HalfClose() {
  up_->Push([self = shared_from_this()] { self->stream_->Close(grpc::Status::OK); });
}

void Connection::Drop() {
  client_ = {};
  if (over_) {
    return;
  }
  if (site_.universe.Chance(50)) {
    up_->Reset();  // The cancellation overtakes what was not sent yet.
  }
  up_->Push([self = shared_from_this()] { self->TellDriver(); });
}

void Connection::Break() {
  if (over_) {
    return;
  }
  (site_.universe.Chance(50) ? up_ : down_)->Reset();
  up_->Push([self = shared_from_this()] { self->TellDriver(); });
  down_->Push([self = shared_from_this()] {
    self->TellClient({grpc::StatusCode::UNAVAILABLE, "connection reset by peer"});
  });
}

void Connection::LoseDriver() {
  over_ = true;
  up_->Reset();
  down_->Push([self = shared_from_this()] {
    self->TellClient({grpc::StatusCode::UNAVAILABLE, "Socket closed"});
  });
}

void Connection::Forget() {
  client_ = {};
  up_->Reset();
  down_->Reset();
}

void Connection::TellClient(const grpc::Status& status) {
  if (client_.loop == nullptr) {
    return;
  }
  client_.loop->Post([self = shared_from_this(), status] {
    if (self->client_.broken) {
      // It may drop this connection while it is told.
      const auto broken = self->client_.broken;
      broken(status);
    }
  });
}

void Connection::TellDriver() {
  if (std::exchange(over_, true) || !site_.driver) {
    return;
  }
  const DriverPort& driver = *site_.driver;
  driver.loop->Post([sessions = driver.sessions, self = shared_from_this()] {
    sessions->HandleClosed(self->stream_);
  });
}

}  // namespace muster::sim
