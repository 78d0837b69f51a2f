#include "collectives_case.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

namespace muster::test {
namespace {

constexpr unsigned char kPattern = 0xA5;
// An answer that was never written must not look right.
constexpr unsigned char kNothing = 0xDB;

int64_t RowElements(const Shape& shape) {
  return CountOf(Shape(shape.begin() + 1, shape.end()));
}

}  // namespace

int64_t Chance::Size(int64_t end) {
  int64_t bits = 0;
  while ((int64_t{1} << bits) < end) {
    ++bits;
  }
  return std::min(end - 1, (int64_t{1} << Below(bits)) + Below(int64_t{1} << Below(bits)));
}

Guarded::Guarded(size_t size, size_t offset)
    : size_(size),
      offset_(offset),
      // Not zeroed: these may be large.
      bytes_(new unsigned char[size + offset + 2 * kGuard]) {
  std::memset(bytes_.get(), kPattern, kGuard + offset);
  std::memset(data() + size, kPattern, kGuard);
}

bool Guarded::intact() const {
  const auto is_pattern = [](unsigned char byte) { return byte == kPattern; };
  const unsigned char* begin = bytes_.get();
  const unsigned char* end = begin + kGuard + offset_ + size_;
  return std::all_of(begin, begin + kGuard + offset_, is_pattern) &&
         std::all_of(end, end + kGuard, is_pattern);
}

const char* NameOf(Kind kind) {
  static constexpr const char* kNames[] = {
      "allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Case::Describe() const {
  std::ostringstream text;
  text << (grouped ? "grouped " : "") << NameOf(kind) << " '" << name << "'";
  if (kind == Kind::kAllreduce || kind == Kind::kReducescatter) {
    text << " " << NameOf(op) << " x" << prescale << " x" << postscale;
  }
  if (kind == Kind::kBroadcast) {
    text << " from " << root;
  }
  for (const Part& part : parts) {
    text << " " << NameOf(part.dtype) << "[";
    for (size_t i = 0; i < part.shape.size(); ++i) {
      text << (i == 0 ? "" : ",") << part.shape[i];
    }
    text << "]";
  }
  text << (in_place ? " in place" : "") << " seed " << seed << " set " << set.id << " of "
       << ranks.size();
  return text.str();
}

int64_t GatherRows(const Case& of, size_t part, int rank) {
  const uint64_t chance = Mix(of.seed, part * 1000 + static_cast<uint64_t>(rank), 77);
  return static_cast<int64_t>(chance % static_cast<uint64_t>(of.parts[part].shape[0] + 1));
}

int64_t SplitRows(const Case& of, size_t part, int from, int to) {
  const int64_t most = of.parts[part].shape[0];
  if (of.equal_splits) {
    return most;
  }
  const uint64_t chance =
      Mix(of.seed, part * 1000 + static_cast<uint64_t>(from), 1000 + static_cast<uint64_t>(to));
  // A third of the parts is empty.
  return (chance >> 32) % 3 == 0 ? 0
                                 : static_cast<int64_t>(chance % static_cast<uint64_t>(most + 1));
}

struct Running::Member {
  DType dtype = DType::kF32;
  Shape shape;  // Of what this rank brings.
  std::unique_ptr<Guarded> in;
  std::unique_ptr<Guarded> out;  // Null: in place.
  std::vector<int64_t> splits;
  std::vector<int64_t> received;
  std::optional<Shape> allocated;
  std::string objection;
};

Running::Running(Case of) : case_(std::move(of)) {
  for (size_t part = 0; part < case_.parts.size(); ++part) {
    MakeMember(part);
  }
}

Running::~Running() = default;

int Running::self() const {
  const auto it = std::find(case_.ranks.begin(), case_.ranks.end(), rank());
  return static_cast<int>(it - case_.ranks.begin());
}

Source Running::SourceOf(size_t part) const {
  return {case_.parts[part].dtype, case_.op, case_.values, Mix(case_.seed, part, 5)};
}

void Running::MakeMember(size_t part) {
  auto member = std::make_unique<Member>();
  member->dtype = case_.parts[part].dtype;
  member->shape = case_.parts[part].shape;
  if (case_.kind == Kind::kAllgather) {
    member->shape[0] = GatherRows(case_, part, rank());
  } else if (case_.kind == Kind::kAlltoall) {
    member->shape[0] = 0;
    for (const int to : case_.ranks) {
      member->splits.push_back(SplitRows(case_, part, rank(), to));
      member->shape[0] += member->splits.back();
    }
  }
  const int64_t count = CountOf(member->shape);
  const size_t bytes = static_cast<size_t>(count) * SizeOf(member->dtype);
  member->in = std::make_unique<Guarded>(bytes, case_.offset);
  if (case_.kind == Kind::kBroadcast && rank() != case_.root) {
    std::memset(member->in->data(), kNothing, bytes);
  } else {
    Fill(SourceOf(part), rank(), 0, count, member->in->data());
  }
  if (case_.kind == Kind::kAllreduce && !case_.in_place) {
    member->out = std::make_unique<Guarded>(bytes, case_.offset);
    std::memset(member->out->data(), kNothing, bytes);
  }
  members_.push_back(std::move(member));
}

Tensor Running::In(Member& member) {
  return {member.in->data(), member.dtype, member.shape, {}};
}

Allocate Running::Into(Member& member) {
  return [&member, offset = case_.offset](const Shape& shape, DType dtype, const Device& device) {
    if (member.allocated) {
      member.objection = "the memory was asked for twice";
    }
    if (dtype != member.dtype || device.kind != 0) {
      member.objection = std::string("the memory was asked for as ") + NameOf(dtype);
    }
    member.allocated = shape;
    const size_t bytes = static_cast<size_t>(CountOf(shape)) * SizeOf(dtype);
    member.out = std::make_unique<Guarded>(bytes, offset);
    std::memset(member.out->data(), kNothing, bytes);
    return static_cast<void*>(member.out->data());
  };
}

Options Running::options() const {
  Options options;
  options.name = case_.name;
  options.op = case_.op;
  options.prescale = case_.prescale;
  options.postscale = case_.postscale;
  options.set = case_.set;
  return options;
}

void Running::Submit() {
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  std::vector<Allocate> into;
  for (const auto& member : members_) {
    in.push_back(In(*member));
    into.push_back(Into(*member));
    out.push_back(in.back());
    if (member->out) {
      out.back().data = member->out->data();
    }
  }
  Member& first = *members_[0];
  switch (case_.kind) {
    case Kind::kAllreduce:
      handle_ = case_.grouped ? grouped_allreduce_async(in, out, options())
                              : allreduce_async(in[0], out[0], options());
      return;
    case Kind::kAllgather:
      handle_ = case_.grouped ? grouped_allgather_async(in, into, options())
                              : allgather_async(in[0], into[0], options());
      return;
    case Kind::kReducescatter:
      handle_ = case_.grouped ? grouped_reducescatter_async(in, into, options())
                              : reducescatter_async(in[0], into[0], options());
      return;
    case Kind::kBroadcast:
      handle_ = broadcast_async(in[0], case_.root, options());
      return;
    case Kind::kAlltoall:
      handle_ = alltoall_async(in[0],
                               case_.equal_splits ? std::vector<int64_t>{} : first.splits,
                               into[0],
                               &first.received,
                               options());
      return;
  }
}

void Running::Call() {
  Member& first = *members_[0];
  Tensor out = In(first);
  if (first.out) {
    out.data = first.out->data();
  }
  if (case_.grouped) {
    Submit();
    Wait();
    return;
  }
  switch (case_.kind) {
    case Kind::kAllreduce:
      return allreduce(In(first), out, options());
    case Kind::kAllgather:
      return allgather(In(first), Into(first), options());
    case Kind::kReducescatter:
      return reducescatter(In(first), Into(first), options());
    case Kind::kBroadcast:
      return broadcast(out, case_.root, options());
    case Kind::kAlltoall:
      return alltoall(In(first),
                      case_.equal_splits ? std::vector<int64_t>{} : first.splits,
                      Into(first),
                      &first.received,
                      options());
  }
}

Shape Running::ResultShape(size_t part) const {
  Shape shape = case_.parts[part].shape;
  const auto size = static_cast<int64_t>(case_.ranks.size());
  if (case_.kind == Kind::kAllgather) {
    shape[0] = 0;
    for (const int from : case_.ranks) {
      shape[0] += GatherRows(case_, part, from);
    }
  } else if (case_.kind == Kind::kAlltoall) {
    shape[0] = 0;
    for (const int from : case_.ranks) {
      shape[0] += SplitRows(case_, part, from, rank());
    }
  } else if (case_.kind == Kind::kReducescatter) {
    shape[0] = shape[0] / size + (self() < shape[0] % size ? 1 : 0);
  }
  return shape;
}

Expectation Running::Expected(size_t part) const {
  return {SourceOf(part),
          case_.ranks,
          static_cast<int>(case_.ranks.size()),
          case_.prescale,
          case_.postscale};
}

std::optional<std::string> Running::Check() {
  for (size_t part = 0; part < members_.size(); ++part) {
    if (const std::optional<std::string> wrong = CheckMember(part)) {
      return case_.Describe() + " part " + std::to_string(part) + ": " + *wrong;
    }
  }
  return std::nullopt;
}

std::optional<std::string> Running::CheckAs(const std::vector<int>& bringing) {
  Expectation expected = Expected(0);
  expected.ranks = bringing;
  Member& member = *members_[0];
  const void* got = member.out ? member.out->data() : member.in->data();
  if (const auto wrong = CompareReduced(expected, 0, CountOf(member.shape), got, 20000)) {
    return case_.Describe() + " without those that have joined: " + *wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Running::CheckMember(size_t part) {
  Member& member = *members_[part];
  if (!member.objection.empty()) {
    return member.objection;
  }
  const bool allocates = case_.kind != Kind::kAllreduce && case_.kind != Kind::kBroadcast;
  if (allocates && !member.allocated) {
    return "no memory was asked for";
  }
  if (allocates && *member.allocated != ResultShape(part)) {
    return "the result has " + std::to_string(member.allocated->at(0)) + " rows, not " +
           std::to_string(ResultShape(part)[0]) + ", or other dimensions";
  }
  if (!member.in->intact() || (member.out && !member.out->intact())) {
    return "bytes beside the buffer were written";
  }
  if (case_.kind != Kind::kBroadcast && !case_.in_place) {
    if (const auto wrong =
            CompareCopied(SourceOf(part), rank(), 0, CountOf(member.shape), member.in->data())) {
      return "the input was changed: " + *wrong;
    }
  }
  return CheckValues(part);
}

std::optional<std::string> Running::CheckValues(size_t part) {
  Member& member = *members_[part];
  const Shape shape = ResultShape(part);
  const int64_t count = CountOf(shape);
  const void* got = member.out ? member.out->data() : member.in->data();
  const int64_t sample = case_.values == Values::kConstant ? 64 : 20000;
  switch (case_.kind) {
    case Kind::kAllreduce:
      return case_.op == Op::kAdasum ? CompareAdasum(Expected(part), count, got)
                                     : CompareReduced(Expected(part), 0, count, got, sample);
    case Kind::kReducescatter: {
      const auto size = static_cast<int64_t>(case_.ranks.size());
      const int64_t rows = case_.parts[part].shape[0];
      const int64_t before = self() * (rows / size) + std::min<int64_t>(self(), rows % size);
      return CompareReduced(Expected(part), before * RowElements(shape), count, got, sample);
    }
    case Kind::kBroadcast:
      return CompareCopied(SourceOf(part), case_.root, 0, count, got);
    case Kind::kAllgather: {
      const auto* bytes = static_cast<const unsigned char*>(got);
      for (const int from : case_.ranks) {
        const int64_t elements = GatherRows(case_, part, from) * RowElements(shape);
        if (auto wrong = CompareCopied(SourceOf(part), from, 0, elements, bytes)) {
          return wrong;
        }
        bytes += static_cast<size_t>(elements) * SizeOf(member.dtype);
      }
      return std::nullopt;
    }
    case Kind::kAlltoall:
      return CheckAlltoall(part);
  }
  return "no such kind";
}

std::optional<std::string> Running::CheckAlltoall(size_t part) {
  Member& member = *members_[part];
  const int64_t row = RowElements(case_.parts[part].shape);
  const auto* bytes = member.out->data();
  std::vector<int64_t> received;
  for (const int from : case_.ranks) {
    int64_t before = 0;
    for (const int to : case_.ranks) {
      before += to < rank() ? SplitRows(case_, part, from, to) : 0;
    }
    const int64_t rows = SplitRows(case_, part, from, rank());
    if (auto wrong = CompareCopied(SourceOf(part), from, before * row, rows * row, bytes)) {
      return wrong;
    }
    received.push_back(rows);
    bytes += static_cast<size_t>(rows * row) * SizeOf(member.dtype);
  }
  if (member.received != received) {
    return "the received splits are wrong";
  }
  return std::nullopt;
}

uint64_t Running::Hash() {
  if (case_.kind == Kind::kAlltoall || case_.kind == Kind::kReducescatter) {
    return 0;
  }
  uint64_t hash = 1;
  for (const auto& member : members_) {
    Guarded& bytes = member->out ? *member->out : *member->in;
    const size_t words = bytes.size() / 8;
    for (size_t i = 0; i < words; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + 8 * i, 8);
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
    for (size_t i = 8 * words; i < bytes.size(); ++i) {
      hash = (hash ^ bytes.data()[i]) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
  }
  return hash;
}

}  // namespace muster::test
