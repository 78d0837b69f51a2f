#include "launcher/driver/output_stream.h"

#include <utility>

namespace muster::launcher {
namespace {

OutputLines LinesOf(const v1::OutputChunk& chunk) {
  OutputLines lines;
  lines.incarnation = {chunk.incarnation()};
  lines.slot = {{chunk.host()}, chunk.slot()};
  lines.rank = chunk.rank();
  lines.is_stderr = chunk.is_stderr();
  lines.lines = chunk.lines();
  return lines;
}

}  // namespace

// Under the lock, because a broken stream may still hold a chunk that its successor brings again.
OutputSession::Taken OutputSession::Take(OutputWriter& writer, const v1::OutputChunk& chunk) {
  const MutexLock lock(mutex_);
  switch (filter_.Judge(chunk.sequence())) {
    case ReplayFilter::Verdict::kRepeat:
      return Taken::kYes;
    case ReplayFilter::Verdict::kGap:
      return Taken::kGap;
    case ReplayFilter::Verdict::kNew:
      break;
  }
  if (!writer.TryPush(LinesOf(chunk))) {
    return Taken::kFull;
  }
  filter_.Take();
  return Taken::kYes;
}

uint64_t OutputSession::received() {
  const MutexLock lock(mutex_);
  return filter_.received();
}

OutputStream::OutputStream(OutputWriter& writer, std::shared_ptr<OutputSession> session)
    : writer_(writer), session_(std::move(session)) {
  StartRead(&incoming_);
}

OutputStream::OutputStream(OutputWriter& writer, const grpc::Status& refusal) : writer_(writer) {
  Finish(refusal);
}

void OutputStream::OnReadDone(bool ok) {
  if (ok) {
    Offer();
    return;
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  WriteAck();
}

void OutputStream::Offer() {
  switch (session_->Take(writer_, incoming_)) {
    case OutputSession::Taken::kFull:
      writer_.OnSpace([this] { Offer(); });
      return;
    case OutputSession::Taken::kGap: {
      const MutexLock lock(mutex_);
      ended_ = true;
      end_ = {grpc::StatusCode::INVALID_ARGUMENT, "a chunk of output is missing"};
      return WriteAck();
    }
    case OutputSession::Taken::kYes:
      break;
  }
  {
    const MutexLock lock(mutex_);
    WriteAck();
  }
  StartRead(&incoming_);
}

void OutputStream::WriteAck() {
  if (writing_) {
    return;
  }
  const uint64_t received = session_->received();
  if (received > acknowledged_) {
    writing_ = true;
    acknowledged_ = received;
    ack_.set_received(received);
    StartWrite(&ack_);
  } else if (ended_) {
    Finish(end_);
  }
}

void OutputStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  writing_ = false;
  if (!ok) {
    acknowledged_ = UINT64_MAX;  // Nobody hears it any more.
  }
  WriteAck();
}

}  // namespace muster::launcher
