#include "worker/control_messages.h"

#include <utility>

#include "worker/core/dtype.h"
#include "worker/wire.h"

namespace muster::worker {
namespace {

// The numbers of the variants' alternatives are their types on the wire; their order is the
// protocol's.
constexpr size_t kDimensionsMax = 64;
// So that the table of a thousand ranks still fits into a frame, whatever one of them announces.
constexpr size_t kAddressesMax = 64;
constexpr size_t kAddressBytesMax = 64;

template <class Enum>
Enum GetEnum(WireReader& reader, uint8_t count) {
  const auto value = reader.Get<uint8_t>();
  if (value >= count) {
    reader.Fail();
    return Enum{};
  }
  return static_cast<Enum>(value);
}

bool GetBool(WireReader& reader) {
  return reader.Get<uint8_t>() != 0;
}

void PutInts(WireWriter& writer, const std::vector<int64_t>& values) {
  writer.PutCount(values.size());
  for (const int64_t value : values) {
    writer.Put(value);
  }
}

std::vector<int64_t> GetInts(WireReader& reader) {
  std::vector<int64_t> values(reader.GetCount(sizeof(int64_t)));
  for (int64_t& value : values) {
    value = reader.Get<int64_t>();
  }
  return values;
}

void PutStrings(WireWriter& writer, const std::vector<std::string>& values) {
  writer.PutCount(values.size());
  for (const std::string& value : values) {
    writer.PutString(value);
  }
}

std::vector<std::string> GetAddresses(WireReader& reader) {
  std::vector<std::string> values(reader.GetCount(sizeof(uint32_t)));
  for (std::string& value : values) {
    value = reader.GetString();
    if (values.size() > kAddressesMax || value.size() > kAddressBytesMax) {
      reader.Fail();
    }
  }
  return values;
}

// ---------------------------------------------------------------- requests

void Put(WireWriter& writer, const Signature& signature) {
  writer.Put(static_cast<uint8_t>(signature.kind));
  writer.Put(static_cast<uint8_t>(signature.dtype));
  PutInts(writer, signature.shape);
  writer.Put(signature.device_kind);
  writer.Put(static_cast<uint8_t>(signature.op));
  writer.Put(signature.root);
  writer.Put(signature.prescale);
  writer.Put(signature.postscale);
  writer.Put(signature.set);
}

Signature GetSignature(WireReader& reader) {
  Signature signature;
  signature.kind = GetEnum<OpKind>(reader, kOpKindCount);
  signature.dtype = GetEnum<DType>(reader, kDTypeCount);
  signature.shape = GetInts(reader);
  if (signature.shape.size() > kDimensionsMax) {
    reader.Fail();
  }
  signature.device_kind = reader.Get<int32_t>();
  signature.op = GetEnum<Op>(reader, kOpCount);
  signature.root = reader.Get<int32_t>();
  signature.prescale = reader.Get<double>();
  signature.postscale = reader.Get<double>();
  signature.set = reader.Get<int32_t>();
  return signature;
}

void Put(WireWriter& writer, const Request& request) {
  writer.Put(static_cast<uint8_t>(request.index()));
  if (const auto* known = std::get_if<KnownRequest>(&request)) {
    writer.Put(known->id);
    return;
  }
  const auto& full = std::get<FullRequest>(request);
  writer.PutString(full.name);
  Put(writer, full.signature);
  writer.Put(static_cast<uint8_t>(full.reusable));
  writer.Put(static_cast<uint8_t>(full.vote));
  writer.PutString(full.objection);
}

Request GetRequest(WireReader& reader) {
  const auto type = reader.Get<uint8_t>();
  if (type == 1) {
    return KnownRequest{reader.Get<uint32_t>()};
  }
  if (type != 0) {
    reader.Fail();
  }
  FullRequest full;
  full.name = reader.GetString();
  if (full.name.empty()) {
    reader.Fail();
  }
  full.signature = GetSignature(reader);
  full.reusable = GetBool(reader);
  full.vote = GetBool(reader);
  full.objection = reader.GetString();
  return full;
}

// ---------------------------------------------------------------- log entries

struct EntryWriter {
  WireWriter& writer;

  void Key(const OperationKey& key) const {
    writer.Put(key.id);
    writer.PutString(key.name);
  }
  void operator()(const Execute& entry) const {
    Key(entry.key);
    PutInts(writer, entry.first_dims);
  }
  void operator()(const Agreed& entry) const {
    Key(entry.key);
    writer.Put(static_cast<uint8_t>(entry.vote));
  }
  void operator()(const BarrierPassed& entry) const { Key(entry.key); }
  void operator()(const Rejected& entry) const {
    Key(entry.key);
    writer.PutString(entry.message);
  }
  void operator()(const Unserved& entry) const {
    Key(entry.key);
    writer.PutString(entry.message);
  }
  void operator()(const MemberFinished& entry) const { writer.Put(entry.rank); }
};

OperationKey GetKey(WireReader& reader) {
  OperationKey key;
  key.id = reader.Get<uint32_t>();
  key.name = reader.GetString();
  return key;
}

LogEntry GetEntry(WireReader& reader) {
  switch (reader.Get<uint8_t>()) {
    case 0: {
      OperationKey key = GetKey(reader);
      return Execute{std::move(key), GetInts(reader)};
    }
    case 1: {
      OperationKey key = GetKey(reader);
      return Agreed{std::move(key), GetBool(reader)};
    }
    case 2:
      return BarrierPassed{GetKey(reader)};
    case 3: {
      OperationKey key = GetKey(reader);
      return Rejected{std::move(key), reader.GetString()};
    }
    case 4: {
      OperationKey key = GetKey(reader);
      return Unserved{std::move(key), reader.GetString()};
    }
    case 5:
      return MemberFinished{reader.Get<uint32_t>()};
    default:
      reader.Fail();
      return MemberFinished{};
  }
}

// ---------------------------------------------------------------- messages

struct MessageWriter {
  WireWriter& writer;

  void operator()(const Announce& message) const { PutStrings(writer, message.addresses); }
  void operator()(const Requests& message) const {
    writer.PutCount(message.requests.size());
    for (const Request& request : message.requests) {
      Put(writer, request);
    }
  }
  void operator()(const Bye& message) const { writer.Put(static_cast<uint8_t>(message.done)); }
  void operator()(const AddressTable& message) const {
    writer.PutCount(message.addresses.size());
    for (const auto& addresses : message.addresses) {
      PutStrings(writer, addresses);
    }
  }
  void operator()(const Entries& message) const {
    writer.PutCount(message.entries.size());
    for (const LogEntry& entry : message.entries) {
      writer.Put(static_cast<uint8_t>(entry.index()));
      std::visit(EntryWriter{writer}, entry);
    }
  }
};

template <class Item, class Get>
std::vector<Item> GetList(WireReader& reader, Get get) {
  const size_t count = reader.GetCount(1);
  std::vector<Item> items;
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    items.push_back(get(reader));
  }
  return items;
}

ControlMessage GetMessage(WireReader& reader) {
  switch (reader.Get<uint8_t>()) {
    case 0:
      return Announce{GetAddresses(reader)};
    case 1:
      return Requests{GetList<Request>(reader, GetRequest)};
    case 2:
      return Bye{GetBool(reader)};
    case 3:
      return AddressTable{GetList<std::vector<std::string>>(reader, GetAddresses)};
    case 4:
      return Entries{GetList<LogEntry>(reader, GetEntry)};
    default:
      reader.Fail();
      return Bye{};
  }
}

}  // namespace

std::string Encode(const ControlMessage& message) {
  WireWriter writer;
  writer.Put(static_cast<uint8_t>(message.index()));
  std::visit(MessageWriter{writer}, message);
  return writer.Take();
}

Result<ControlMessage> Decode(std::string_view bytes) {
  WireReader reader(bytes);
  ControlMessage message = GetMessage(reader);
  if (!reader.ok() || !reader.at_end()) {
    return Status::Invalid("a control message of " + std::to_string(bytes.size()) +
                           " bytes cannot be read");
  }
  return message;
}

}  // namespace muster::worker
