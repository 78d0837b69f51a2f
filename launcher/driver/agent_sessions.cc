#include "launcher/driver/agent_sessions.h"

#include <utility>

#include "common/version.h"
#include "discovery/host_list.h"

namespace muster::launcher {

AgentSessions::AgentSessions(Loop& loop,
                             AgentListener& listener,
                             std::function<void(const std::string& session)> forgotten)
    : loop_(loop), listener_(listener), forgotten_(std::move(forgotten)) {}

void AgentSessions::Close() {
  open_ = false;
  closed_ = true;
  sessions_.clear();
}

void AgentSessions::Send(const HostId& host, v1::AgentOrder order) {
  const auto it = sessions_.find(host);
  if (it == sessions_.end()) {
    return;
  }
  Session& session = it->second;
  if (session.orders.size() >= kQueuedOrdersMax) {
    Forget(host);  // What it would still be told could not be kept.
    loop_.Post([this, host] {
      if (open_) {
        listener_.OnAgentDetached(host, "its agent does not take its orders");
      }
    });
    return;
  }
  const v1::AgentOrder& numbered = session.orders.Push(std::move(order));
  if (session.stream != nullptr) {
    session.stream->Send(numbered);
  }
}

void AgentSessions::Forget(const HostId& host) {
  const auto it = sessions_.find(host);
  if (it == sessions_.end()) {
    return;
  }
  forgotten_(it->second.id);
  if (it->second.stream != nullptr) {
    it->second.stream->greeted = false;
    it->second.stream->Close({grpc::StatusCode::NOT_FOUND, "the driver has given this host up"});
  }
  sessions_.erase(it);
}

void AgentSessions::HandleReport(const std::shared_ptr<AgentStream>& stream,
                                 const v1::AgentReport& report) {
  if (!open_) {
    return;
  }
  if (report.has_hello()) {
    HandleHello(stream, report.hello());
    return;
  }
  const auto it = sessions_.find(stream->host);
  if (it == sessions_.end() || it->second.stream != stream) {
    return;  // Refused, or another stream has taken its place.
  }
  if (report.has_summary()) {
    HandleSummary(it->first, it->second, report.summary());
    return;
  }
  switch (it->second.reports.Judge(report.sequence())) {
    case ReplayFilter::Verdict::kNew:
      it->second.reports.Take();
      listener_.OnAgentReport(HostId(it->first), report);
      return;
    case ReplayFilter::Verdict::kRepeat:
      return;
    case ReplayFilter::Verdict::kGap:
      stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "a report is missing"});
      return;
  }
}

void AgentSessions::HandleSummary(const HostId& host,
                                  Session& session,
                                  const v1::AgentSummary& summary) {
  if (!session.orders.Acknowledge(summary.orders_received())) {
    session.stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "it has orders that never were"});
    return;
  }
  v1::AgentOrder order;
  order.mutable_summary_ack()->set_sequence(summary.sequence());
  order.mutable_summary_ack()->set_reports_received(session.reports.received());
  session.stream->Send(order);
  listener_.OnAgentSummary(HostId(host));
}

void AgentSessions::HandleHello(const std::shared_ptr<AgentStream>& stream,
                                const v1::AgentHello& hello) {
  if (hello.protocol() != kProtocolVersion) {
    stream->Close({grpc::StatusCode::FAILED_PRECONDITION,
                   "the driver speaks protocol " + std::to_string(kProtocolVersion) +
                       ", the agent " + std::to_string(hello.protocol()) +
                       "; install the same version of Muster on every host"});
    return;
  }
  if (!discovery::IsHost(hello.host()) || hello.slots() > discovery::kSlotsMax) {
    stream->Close({grpc::StatusCode::FAILED_PRECONDITION,
                   "a host has a name of letters, digits, '-', '_' and '.', and at most " +
                       std::to_string(discovery::kSlotsMax) + " slots"});
    return;
  }
  const HostId host{hello.host()};
  const auto it = sessions_.find(host);
  if (it != sessions_.end() && it->second.id == hello.session() && !stream->greeted) {
    Resume(it->second, stream, hello);
    return;
  }
  if (hello.resume() || stream->greeted) {
    stream->Close({grpc::StatusCode::NOT_FOUND, "the driver has given this host up"});
    return;
  }
  if (const std::optional<std::string> refusal = listener_.OnAgentHello(host, hello)) {
    // An agent that dials in may be taken later; one that the driver started itself will not be.
    stream->Close({hello.slots() > 0 ? grpc::StatusCode::ALREADY_EXISTS
                                     : grpc::StatusCode::FAILED_PRECONDITION,
                   *refusal});
    return;
  }
  Forget(host);
  Session& session = sessions_[host];
  session.id = hello.session();
  stream->host = host;
  Adopt(session, stream);
  listener_.OnAgentAttached(host, hello);
}

void AgentSessions::Adopt(Session& session, const std::shared_ptr<AgentStream>& stream) {
  stream->greeted = true;
  if (const std::shared_ptr<AgentStream> old = std::exchange(session.stream, stream)) {
    old->Close({grpc::StatusCode::ABORTED, "the session goes on over another stream"});
  }
}

void AgentSessions::Resume(Session& session,
                           const std::shared_ptr<AgentStream>& stream,
                           const v1::AgentHello& hello) {
  if (!session.orders.Acknowledge(hello.orders_received())) {
    stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "it has orders that never were"});
    return;
  }
  stream->host = HostId{hello.host()};
  Adopt(session, stream);
  v1::AgentOrder resumed;
  resumed.mutable_resumed()->set_reports_received(session.reports.received());
  stream->Send(resumed);
  for (const v1::AgentOrder& order : session.orders.unacknowledged()) {
    stream->Send(order);
  }
  listener_.OnAgentResumed(HostId(stream->host));
}

void AgentSessions::HandleClosed(const std::shared_ptr<AgentStream>& stream) {
  const auto it = sessions_.find(stream->host);
  if (!open_ || it == sessions_.end() || it->second.stream != stream) {
    return;
  }
  it->second.stream = nullptr;
  listener_.OnAgentDetached(HostId(stream->host), "its stream to the driver broke");
}

}  // namespace muster::launcher
