#include "launcher/agent/driver_session.h"

#include <algorithm>
#include <utility>

#include "common/address.h"
#include "common/log.h"
#include "common/secret.h"

namespace muster::launcher {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kSessionBytes = 16;
// From an address that was reached until the driver's first order.
constexpr Duration kOpenDeadline = seconds(2);
constexpr Duration kFirstBackOff = milliseconds(100);
constexpr Duration kLongestBackOff = seconds(1);

}  // namespace

DriverSession::DriverSession(Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      id_(RandomHex(kSessionBytes)),
      own_address_(options_.own_address),
      back_off_(kFirstBackOff) {}

DriverSession::~DriverSession() {
  loop_.Cancel(open_timer_);
  loop_.Cancel(search_timer_);
}

void DriverSession::Start(v1::AgentHello hello) {
  hello_ = std::move(hello);
  hello_.set_session(id_);
  give_up_ = clock_.Now() + options_.patience;
  if (options_.remote && callbacks_.leased) {
    callbacks_.leased(give_up_ + kOpenDeadline);
  }
  if (options_.remote) {
    Search();
  } else {
    Open({options_.addresses.empty() ? "" : options_.addresses.front(), ""});
  }
}

// ---------------------------------------------------------------- finding a way

void DriverSession::Search() {
  candidates_.clear();
  AddressProber::Callbacks callbacks;
  callbacks.reached = [this](const AddressProber::Reached& reached) {
    candidates_.push_back(reached);
    if (link_ == nullptr) {
      TryNext();
    }
  };
  callbacks.done = [this](const std::string& why) {
    if (link_ == nullptr && !why.empty()) {
      NoteTrouble(why);
    }
    prober_.reset();  // And `why` with it.
    if (link_ == nullptr) {
      SearchAgain();
    }
  };
  prober_ = std::make_unique<AddressProber>(loop_, options_.addresses, std::move(callbacks));
  prober_->Start();
}

void DriverSession::SearchAgain() {
  if (ended_ || prober_ != nullptr) {
    return;  // What is under way tells of its end.
  }
  if (!welcomed_ && clock_.Now() >= give_up_) {
    End({StatusCode::kTimeout,
         "no driver answered within " +
             std::to_string(duration_cast<seconds>(options_.patience).count()) + " s" +
             (trouble_.empty() ? "" : "; the last trouble: " + trouble_)});
    return;
  }
  loop_.Cancel(search_timer_);
  search_timer_ = loop_.After(back_off_, [this] { Search(); });
  back_off_ = std::min(2 * back_off_, kLongestBackOff);
}

void DriverSession::TryNext() {
  if (candidates_.empty()) {
    SearchAgain();
    return;
  }
  const AddressProber::Reached reached = std::move(candidates_.front());
  candidates_.pop_front();
  Open(reached);
}

void DriverSession::Open(const AddressProber::Reached& reached) {
  Result<std::shared_ptr<grpc::Channel>> channel =
      options_.remote ? MakeRemoteDriverChannel(reached.driver, options_.secret)
                      : MakeDriverChannel(reached.driver);
  if (!channel.ok()) {
    End(channel.status());
    return;
  }
  channel_ = std::move(channel).value();
  const uint64_t stream = ++stream_;
  attached_ = false;
  reached_own_ = reached.own;
  link_ = std::make_unique<DriverLink>(
      loop_,
      channel_,
      options_.secret,
      DriverLink::Callbacks{[this, stream](const v1::AgentOrder& order) {
                              if (stream == stream_ && link_ != nullptr) {
                                OnOrder(order);
                              }
                            },
                            [this, stream](const Status& status) {
                              if (stream == stream_ && link_ != nullptr) {
                                OnLinkBroken(status);
                              }
                            }});
  if (options_.remote) {
    hello_.set_resume(welcomed_);
    hello_.set_orders_received(orders_.received());
    hello_.mutable_driver_address()->set_literal(reached.driver);
    hello_.mutable_own_address()->set_literal(
        JoinAddress(own_address_.empty() ? reached.own : own_address_, 0));
    open_timer_ = loop_.After(kOpenDeadline, [this, to = reached.driver] {
      Break(to + " was reached, but no driver of this job answered there");
    });
  }
  hello_sent_ = clock_.Now();
  link_->Start(hello_);
}

// ---------------------------------------------------------------- one stream

void DriverSession::OnOrder(const v1::AgentOrder& order) {
  if (order.has_summary_ack()) {
    last_answer_ = clock_.Now();
    lease_.SummaryAcknowledged(order.summary_ack().sequence());
    TellLease();
    if (!reports_.Acknowledge(order.summary_ack().reports_received())) {
      Break("the driver has reports that never were");
    }
    return;
  }
  if (order.has_resumed()) {
    if (!reports_.Acknowledge(order.resumed().reports_received())) {
      Break("the driver has reports that never were");
      return;
    }
    OnAttached();
    return;
  }
  switch (orders_.Judge(order.sequence())) {
    case ReplayFilter::Verdict::kRepeat:
      return;
    case ReplayFilter::Verdict::kGap:
      Break("an order is missing");
      return;
    case ReplayFilter::Verdict::kNew:
      break;
  }
  orders_.Take();
  if (!attached_) {
    OnAttached();  // The welcome.
  }
  callbacks_.order(order);
}

void DriverSession::OnAttached() {
  const bool again = welcomed_;
  loop_.Cancel(open_timer_);
  loop_.Cancel(search_timer_);
  attached_ = welcomed_ = true;
  back_off_ = kFirstBackOff;
  last_answer_ = clock_.Now();
  lease_.Renew(hello_sent_);  // The driver, too, counts from the hello, which it answers.
  TellLease();
  prober_.reset();
  candidates_.clear();
  if (own_address_.empty()) {
    own_address_ = reached_own_;
  }
  if (again) {
    spdlog::info("attached to the driver again; {} reports are sent again", reports_.size());
  }
  for (const v1::AgentReport& report : reports_.unacknowledged()) {
    link_->Send(report);
  }
  callbacks_.connected(channel_);
}

void DriverSession::OnLinkBroken(const Status& status) {
  const bool was_attached = std::exchange(attached_, false);
  RetireLink();
  loop_.Cancel(open_timer_);
  if (ended_) {
    return;
  }
  const bool final = status.code() == StatusCode::kInvalid;
  if (!options_.remote || final || finishing_) {
    End(status);
    return;
  }
  if (was_attached) {
    spdlog::warn("the stream to the driver broke{}; trying again",
                 status.ok() ? "" : ": " + status.message());
  } else {
    NoteTrouble(status.message());
  }
  TryNext();
}

// Once per change: it may be tried for minutes.
void DriverSession::NoteTrouble(const std::string& message) {
  const bool foreign = message.find("andshake failed") != std::string::npos;
  const std::string trouble =
      foreign ? hello_.driver_address().literal() +
                    " was reached, but whoever answers there is not this job's driver: it does not "
                    "have the same secret"
              : message;
  if (trouble_ != trouble) {
    trouble_ = trouble;
    spdlog::warn("{}: {}", welcomed_ ? "no way to the driver" : "no driver yet", trouble_);
  }
}

// It may be calling us at this moment.
void DriverSession::RetireLink() {
  old_links_.push_back(std::move(link_));
  loop_.Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) {
      old_links_.clear();
    }
  });
}

// Gives this stream up; the next one follows.
void DriverSession::Break(const std::string& why) {
  if (link_ != nullptr) {
    OnLinkBroken({StatusCode::kUnavailable, why});
  }
}

void DriverSession::End(const Status& status) {
  if (!std::exchange(ended_, true)) {
    callbacks_.ended(status);
  }
}

// ---------------------------------------------------------------- what is sent

void DriverSession::Send(v1::AgentReport report) {
  if (ended_) {
    return;
  }
  const v1::AgentReport& numbered = reports_.Push(std::move(report));
  if (reports_.size() > kReportsMax) {
    End({StatusCode::kUnavailable, "the driver has not taken a report for too long"});
    return;
  }
  if (attached_) {
    link_->Send(numbered);
  }
}

void DriverSession::SendSummary(v1::AgentSummary summary) {
  if (ended_ || !welcomed_) {
    return;
  }
  CheckLease();
  if (ended_ || !attached_) {
    return;
  }
  summary.set_sequence(++summaries_);
  summary.set_orders_received(orders_.received());
  lease_.SummarySent(summaries_, clock_.Now());
  v1::AgentReport report;
  *report.mutable_summary() = std::move(summary);
  link_->Send(std::move(report));
}

void DriverSession::SetGrace(Duration grace) {
  grace_ = grace;
  TellLease();
}

void DriverSession::TellLease() {
  if (options_.remote && callbacks_.leased && grace_ != Duration::max()) {
    callbacks_.leased(lease_.renewed() + grace_);
  }
}

void DriverSession::CheckLease() {
  if (!options_.remote || finishing_) {
    return;
  }
  const Instant now = clock_.Now();
  if (lease_.Expired(now, grace_)) {
    End({StatusCode::kTimeout,
         "the driver has not answered for " +
             std::to_string(duration_cast<seconds>(grace_).count()) + " s (--driver-grace)"});
  } else if (attached_ && now - last_answer_ > kUnansweredMax) {
    Break("no answer for 1.5 s");
  }
}

void DriverSession::Finish() {
  finishing_ = true;
  if (link_ != nullptr) {
    link_->Finish();
  } else {
    End({StatusCode::kUnavailable, "there is no stream to the driver"});
  }
}

}  // namespace muster::launcher
