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

template <class T>
void PutNumbers(WireWriter& writer, const std::vector<T>& values) {
  writer.PutCount(values.size());
  for (const T value : values) {
    writer.Put(value);
  }
}

template <class T>
std::vector<T> GetNumbers(WireReader& reader) {
  std::vector<T> values(reader.GetCount(sizeof(T)));
  for (T& value : values) {
    value = reader.Get<T>();
  }
  return values;
}

template <class Item, class Get>
std::vector<Item> GetList(WireReader& reader, Get get) {
  const size_t count = reader.GetCount(1);
  std::vector<Item> items;
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    items.push_back(get(reader));
  }
  return items;
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
  PutNumbers(writer, signature.shape);
  writer.Put(signature.device_kind);
  writer.Put(static_cast<uint8_t>(signature.op));
  writer.Put(signature.root);
  writer.Put(signature.prescale);
  writer.Put(signature.postscale);
  writer.Put(signature.set);
  PutNumbers(writer, signature.ranks);
  writer.PutString(signature.group.name);
  writer.Put(signature.group.size);
  writer.Put(signature.group.index);
}

Signature GetSignature(WireReader& reader) {
  Signature signature;
  signature.kind = GetEnum<OpKind>(reader, kOpKindCount);
  signature.dtype = GetEnum<DType>(reader, kDTypeCount);
  signature.shape = GetNumbers<int64_t>(reader);
  if (signature.shape.size() > kDimensionsMax) {
    reader.Fail();
  }
  signature.device_kind = reader.Get<int32_t>();
  signature.op = GetEnum<Op>(reader, kOpCount);
  signature.root = reader.Get<int32_t>();
  signature.prescale = reader.Get<double>();
  signature.postscale = reader.Get<double>();
  signature.set = reader.Get<int32_t>();
  signature.ranks = GetNumbers<int32_t>(reader);
  signature.group.name = reader.GetString();
  signature.group.size = reader.Get<uint32_t>();
  signature.group.index = reader.Get<uint32_t>();
  return signature;
}

void Put(WireWriter& writer, const Request& request) {
  writer.Put(static_cast<uint8_t>(request.index()));
  if (const auto* known = std::get_if<KnownRequest>(&request)) {
    writer.Put(known->id);
    writer.PutString(known->small);
    return;
  }
  const auto& full = std::get<FullRequest>(request);
  writer.PutString(full.name);
  Put(writer, full.signature);
  PutNumbers(writer, full.splits);
  writer.Put(static_cast<uint8_t>(full.reusable));
  writer.Put(static_cast<uint8_t>(full.vote));
  writer.PutString(full.objection);
  writer.PutString(full.small);
}

Request GetRequest(WireReader& reader) {
  const auto type = reader.Get<uint8_t>();
  if (type == 1) {
    KnownRequest known{reader.Get<uint32_t>(), ""};
    known.small = reader.GetString();
    return known;
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
  full.splits = GetNumbers<int64_t>(reader);
  full.reusable = GetBool(reader);
  full.vote = GetBool(reader);
  full.objection = reader.GetString();
  full.small = reader.GetString();
  return full;
}

// ---------------------------------------------------------------- log entries

struct EntryWriter {
  WireWriter& writer;

  void Key(const OperationKey& key) const {
    writer.Put(key.id);
    writer.PutString(key.name);
    writer.Put(key.set);
  }
  void operator()(const Execute& entry) const {
    writer.Put(entry.set);
    writer.PutCount(entry.items.size());
    for (const Item& item : entry.items) {
      writer.Put(item.key.id);  // The set is the entry's.
      writer.PutString(item.key.name);
      PutNumbers(writer, item.dims);
      writer.Put(static_cast<uint8_t>(item.joined.size()));
      for (const Signature& signature : item.joined) {
        Put(writer, signature);
      }
    }
  }
  void operator()(const SmallResult& entry) const {
    Key(entry.key);
    writer.PutString(entry.bytes);
  }
  void operator()(const Agreed& entry) const {
    Key(entry.key);
    writer.Put(static_cast<uint8_t>(entry.vote));
  }
  void operator()(const BarrierPassed& entry) const { Key(entry.key); }
  void operator()(const AllJoined& entry) const {
    Key(entry.key);
    writer.Put(entry.last_rank);
  }
  void operator()(const SetAdded& entry) const {
    Key(entry.key);
    writer.Put(entry.set);
    PutNumbers(writer, entry.ranks);
  }
  void operator()(const SetRemoved& entry) const {
    Key(entry.key);
    writer.Put(entry.set);
  }
  void operator()(const Rejected& entry) const {
    Key(entry.key);
    writer.PutString(entry.message);
    PutNumbers(writer, entry.only);
  }
  void operator()(const Unserved& entry) const {
    Key(entry.key);
    writer.PutString(entry.message);
  }
  void operator()(const MemberFinished& entry) const { writer.Put(entry.rank); }
};

void PutEntry(WireWriter& writer, const LogEntry& entry) {
  writer.Put(static_cast<uint8_t>(entry.index()));
  std::visit(EntryWriter{writer}, entry);
}

OperationKey GetKey(WireReader& reader) {
  OperationKey key;
  key.id = reader.Get<uint32_t>();
  key.name = reader.GetString();
  key.set = reader.Get<int32_t>();
  return key;
}

Item GetItem(WireReader& reader) {
  Item item;
  item.key.id = reader.Get<uint32_t>();
  item.key.name = reader.GetString();
  item.dims = GetNumbers<int64_t>(reader);
  if (GetBool(reader)) {
    item.joined.push_back(GetSignature(reader));
  }
  return item;
}

Execute GetExecute(WireReader& reader) {
  Execute entry;
  entry.set = reader.Get<int32_t>();
  entry.items = GetList<Item>(reader, GetItem);
  for (Item& item : entry.items) {
    item.key.set = entry.set;
  }
  return entry;
}

SetAdded GetSetAdded(WireReader& reader) {
  SetAdded entry;
  entry.key = GetKey(reader);
  entry.set = reader.Get<int32_t>();
  entry.ranks = GetNumbers<int32_t>(reader);
  return entry;
}

Rejected GetRejected(WireReader& reader) {
  Rejected entry;
  entry.key = GetKey(reader);
  entry.message = reader.GetString();
  entry.only = GetNumbers<uint32_t>(reader);
  return entry;
}

/// An entry of a key and one more thing.
template <class Entry, class Get>
Entry GetKeyAnd(WireReader& reader, Get get) {
  OperationKey key = GetKey(reader);
  return Entry{std::move(key), get()};
}

LogEntry GetEntry(WireReader& reader) {
  const auto text = [&] { return reader.GetString(); };
  switch (reader.Get<uint8_t>()) {
    case 0:
      return GetExecute(reader);
    case 1:
      return GetKeyAnd<SmallResult>(reader, text);
    case 2:
      return GetKeyAnd<Agreed>(reader, [&] { return GetBool(reader); });
    case 3:
      return BarrierPassed{GetKey(reader)};
    case 4:
      return GetKeyAnd<AllJoined>(reader, [&] { return reader.Get<uint32_t>(); });
    case 5:
      return GetSetAdded(reader);
    case 6:
      return GetKeyAnd<SetRemoved>(reader, [&] { return reader.Get<int32_t>(); });
    case 7:
      return GetRejected(reader);
    case 8:
      return GetKeyAnd<Unserved>(reader, text);
    case 9:
      return MemberFinished{reader.Get<uint32_t>()};
    default:
      reader.Fail();
      return MemberFinished{};
  }
}

// ---------------------------------------------------------------- messages

void PutSets(WireWriter& writer, const std::vector<SetRecord>& sets, int32_t next_id) {
  writer.PutCount(sets.size());
  for (const SetRecord& set : sets) {
    writer.Put(set.id);
    PutNumbers(writer, set.incarnations);
  }
  writer.Put(next_id);
}

SetRecord GetSet(WireReader& reader) {
  SetRecord set;
  set.id = reader.Get<int32_t>();
  set.incarnations = GetNumbers<uint64_t>(reader);
  return set;
}

struct MessageWriter {
  WireWriter& writer;

  void operator()(const Announce& message) const {
    PutStrings(writer, message.addresses);
    writer.Put(message.incarnation);
    writer.Put(message.host);
    writer.Put(static_cast<uint8_t>(message.has_segment));
    PutSets(writer, message.sets, message.next_set_id);
  }
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
    PutNumbers(writer, message.incarnations);
    PutNumbers(writer, message.hosts);
    writer.Put(static_cast<uint8_t>(message.backend));
    PutSets(writer, message.sets, message.next_set_id);
  }
  void operator()(const Entries& message) const {
    writer.PutCount(message.entries.size());
    for (const LogEntry& entry : message.entries) {
      PutEntry(writer, entry);
    }
  }
  void operator()(const Poke& /*message*/) const {}
};

Announce GetAnnounce(WireReader& reader) {
  Announce message;
  message.addresses = GetAddresses(reader);
  message.incarnation = reader.Get<uint64_t>();
  message.host = reader.Get<uint32_t>();
  message.has_segment = GetBool(reader);
  message.sets = GetList<SetRecord>(reader, GetSet);
  message.next_set_id = reader.Get<int32_t>();
  return message;
}

AddressTable GetAddressTable(WireReader& reader) {
  AddressTable message;
  message.addresses = GetList<std::vector<std::string>>(reader, GetAddresses);
  message.incarnations = GetNumbers<uint64_t>(reader);
  message.hosts = GetNumbers<uint32_t>(reader);
  message.backend = GetEnum<BackendKind>(reader, kBackendKindCount);
  message.sets = GetList<SetRecord>(reader, GetSet);
  message.next_set_id = reader.Get<int32_t>();
  if (message.incarnations.size() != message.addresses.size() ||
      message.hosts.size() != message.addresses.size()) {
    reader.Fail();
  }
  return message;
}

ControlMessage GetMessage(WireReader& reader) {
  switch (reader.Get<uint8_t>()) {
    case 0:
      return GetAnnounce(reader);
    case 1:
      return Requests{GetList<Request>(reader, GetRequest)};
    case 2:
      return Bye{GetBool(reader)};
    case 3:
      return GetAddressTable(reader);
    case 4:
      return Entries{GetList<LogEntry>(reader, GetEntry)};
    case 5:
      return Poke{};
    default:
      reader.Fail();
      return Bye{};
  }
}

// ---------------------------------------------------------------- lists in pieces

template <class Message>
uint8_t TypeOf() {
  return static_cast<uint8_t>(ControlMessage(Message{}).index());
}

constexpr size_t kListHeaderBytes = sizeof(uint8_t) + sizeof(uint32_t);

/// Messages of the type, each with as many of the encoded things as fit.
class ListEncoder {
 public:
  ListEncoder(uint8_t type, size_t bytes_max) : type_(type), bytes_max_(bytes_max) {}

  void Add(std::string_view thing) {
    if (count_ > 0 && kListHeaderBytes + body_.size() + thing.size() > bytes_max_) {
      Close();
    }
    body_ += thing;
    ++count_;
  }
  std::vector<std::string> Take() {
    if (count_ > 0) {
      Close();
    }
    return std::move(messages_);
  }

 private:
  void Close() {
    WireWriter header;
    header.Put(type_);
    header.PutCount(std::exchange(count_, 0));
    messages_.push_back(header.Take() + std::exchange(body_, {}));
  }

  const uint8_t type_;
  const size_t bytes_max_;
  std::vector<std::string> messages_;
  std::string body_;
  size_t count_ = 0;
};

std::string Encoded(const Request& request) {
  WireWriter writer;
  Put(writer, request);
  return writer.Take();
}

std::string Encoded(const LogEntry& entry) {
  WireWriter writer;
  PutEntry(writer, entry);
  return writer.Take();
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

std::vector<std::string> EncodeRequests(std::span<const Request> requests, size_t bytes_max) {
  ListEncoder encoder(TypeOf<Requests>(), bytes_max);
  for (const Request& request : requests) {
    encoder.Add(Encoded(request));
  }
  return encoder.Take();
}

std::vector<std::string> EncodeEntries(std::span<const LogEntry> entries, size_t bytes_max) {
  ListEncoder encoder(TypeOf<Entries>(), bytes_max);
  for (const LogEntry& entry : entries) {
    encoder.Add(Encoded(entry));
  }
  return encoder.Take();
}

size_t EncodedSize(const Request& request) {
  return kListHeaderBytes + Encoded(request).size();
}

size_t EncodedSize(const LogEntry& entry) {
  return kListHeaderBytes + Encoded(entry).size();
}

}  // namespace muster::worker
