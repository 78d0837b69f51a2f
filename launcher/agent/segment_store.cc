#include "launcher/agent/segment_store.h"

#include <string>
#include <utility>

#include "common/log.h"
#include "common/worker_segment.h"

namespace muster::launcher {

SegmentStore::SegmentStore(Loop& loop, Options options)
    : loop_(loop),
      spare_delay_(options.spare_delay),
      maker_(std::move(options.make),
             [this, alive = std::weak_ptr<bool>(alive_)](Result<UniqueFd> made) {
               // shared_ptr: a closure of the loop is copyable.
               auto result = std::make_shared<Result<UniqueFd>>(std::move(made));
               loop_.Post([this, alive, result] {
                 if (!alive.expired()) {
                   OnMade(std::move(*result));
                 }
               });
             }) {}

SegmentStore::~SegmentStore() {
  loop_.Cancel(spare_timer_);
}

void SegmentStore::Order(uint64_t generation, size_t members) {
  if (generation <= generation_) {
    return;
  }
  Forget();
  generation_ = generation;
  needed_ = SegmentBytes(members);
  over_ = false;
}

void SegmentStore::Revoke(uint64_t generation) {
  if (generation == generation_) {
    Forget();
  }
}

void SegmentStore::Forget() {
  over_ = true;
  loop_.Cancel(spare_timer_);
  failure_ = Status::Ok();
  if (segment_.fd.valid()) {
    maker_.Close(std::move(segment_.fd));
  }
  AnswerAll(Status::Failed("generation " + std::to_string(generation_) + " is over"));
}

void SegmentStore::Ask(uint64_t generation, Reply reply) {
  if (generation != generation_ || over_) {
    reply(Status::Invalid("generation " + std::to_string(generation) +
                          " is over, or has not been ordered here"));
  } else if (!failure_.ok()) {
    reply(failure_);
  } else if (segment_.fd.valid()) {
    reply(segment_.fd.get());
  } else {
    waiting_.push_back(std::move(reply));
    Provide();
  }
}

// Somebody waits for the segment: takes the spare, or what is being made, or makes one.
void SegmentStore::Provide() {
  if (making_ != 0) {
    maker_.Hurry();
    return;
  }
  if (!spare_.fd.valid() || spare_.bytes < needed_) {
    if (spare_.fd.valid()) {
      maker_.Close(std::move(spare_.fd));
    }
    StartMaking(needed_, SegmentMaker::Urgency::kWanted);
    return;
  }
  segment_ = std::exchange(spare_, {});
  AnswerAll(segment_.fd.get());
  loop_.Cancel(spare_timer_);
  spare_timer_ = loop_.After(spare_delay_, [this] { MakeSpare(); });
}

void SegmentStore::StartMaking(size_t bytes, SegmentMaker::Urgency urgency) {
  making_ = bytes;
  maker_.Start(bytes, urgency);
}

void SegmentStore::OnMade(Result<UniqueFd> fd) {
  const size_t bytes = std::exchange(making_, 0);
  if (fd.ok()) {
    spare_ = {std::move(fd).value(), bytes};
  } else {
    spdlog::warn("no shared memory for the workers of this host: {}", fd.status().message());
  }
  if (waiting_.empty()) {
    return;
  }
  if (!fd.ok() && bytes == needed_) {
    failure_ = fd.status();
    AnswerAll(failure_);
  } else {
    Provide();
  }
}

// As large as the segment in use: a slot that was lost is filled again. But not far too large.
void SegmentStore::MakeSpare() {
  if (!spare_.fd.valid() && making_ == 0) {
    StartMaking(segment_.bytes <= 2 * needed_ ? segment_.bytes : needed_,
                SegmentMaker::Urgency::kSpare);
  }
}

void SegmentStore::AnswerAll(const Result<int>& segment) {
  const std::vector<Reply> waiting = std::exchange(waiting_, {});
  for (const Reply& reply : waiting) {
    reply(segment);
  }
}

}  // namespace muster::launcher
