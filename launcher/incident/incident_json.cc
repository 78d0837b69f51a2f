#include "launcher/incident/incident_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace muster::launcher {
namespace {

using Json = nlohmann::json;
using std::string_view;

// In the order of the enums.
constexpr std::array<string_view, 7> kKinds{
    "loss", "link", "formation", "removal", "growth", "newcomer", "end"};
constexpr std::array<string_view, 5> kOutcomes{"runs", "overtaken", "holds", "ended", "same"};
constexpr std::array<string_view, 17> kFates{"gone",
                                             "killed",
                                             "exited",
                                             "frozen",
                                             "silent",
                                             "stalled",
                                             "agent lost",
                                             "agent silent",
                                             "unanswered",
                                             "expelled",
                                             "unformed",
                                             "overstayed",
                                             "set aside",
                                             "not started",
                                             "drained",
                                             "done",
                                             "spare"};
static_assert(kKinds.size() == static_cast<size_t>(IncidentKind::kEnd) + 1);
static_assert(kOutcomes.size() == static_cast<size_t>(Outcome::kSame) + 1);
static_assert(kFates.size() == static_cast<size_t>(Fate::kSpare) + 1);
constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kSecondsMax = 1e10;

template <class Enum, size_t N>
Json Name(const std::array<string_view, N>& names, Enum value) {
  return std::string(names.at(static_cast<size_t>(value)));
}

template <class Enum, size_t N>
Enum Named(const std::array<string_view, N>& names, const Json& json) {
  const auto found = std::find(names.begin(), names.end(), json.get_ref<const std::string&>());
  if (found == names.end()) {
    throw std::invalid_argument("an unknown word");
  }
  return static_cast<Enum>(found - names.begin());
}

// Rounded to the microsecond, so that reading gives back what was written.
Json Seconds(Duration time) {
  return static_cast<double>(time.count()) / kMicrosecondsPerSecond;
}

Duration ReadSeconds(const Json& json) {
  const auto seconds = json.get<double>();
  if (!(std::abs(seconds) < kSecondsMax)) {
    throw std::invalid_argument("a time out of range");
  }
  return Duration(std::llround(seconds * kMicrosecondsPerSecond));
}

Json MaybeSeconds(const std::optional<Duration>& time) {
  return time ? Seconds(*time) : Json(nullptr);
}

std::optional<Duration> ReadMaybeSeconds(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(ReadSeconds(json));
}

Json Commit(const std::optional<CommitId>& commit) {
  return commit ? Json{commit->generation, commit->sequence} : Json("unknown");
}

std::optional<CommitId> ReadCommit(const Json& json) {
  if (!json.is_array()) {
    return std::nullopt;
  }
  return CommitId{json.at(0).get<uint64_t>(), json.at(1).get<uint64_t>()};
}

Json Place(Incarnation worker, const SlotId& slot) {
  return {{"worker", worker.value}, {"host", slot.host.value}, {"slot", slot.index}};
}

SlotId ReadSlot(const Json& json) {
  return {HostId{json.at("host").get<std::string>()}, json.at("slot").get<uint32_t>()};
}

Json ToJson(const Victim& victim) {
  Json json = Place(victim.worker, victim.slot);
  json["rank"] = victim.rank ? Json(*victim.rank) : Json(nullptr);
  json["pid"] = victim.pid == 0 ? Json(nullptr) : Json(victim.pid);
  json["fate"] = Name(kFates, victim.fate);
  json["code"] = victim.code ? Json(*victim.code) : Json(nullptr);
  json["signal"] = victim.signal == 0 ? Json(nullptr) : Json(victim.signal);
  json["ended_by_muster"] = victim.ended_by_us;
  return json;
}

template <class T>
T OrZero(const Json& json) {
  return json.is_null() ? T{} : json.get<T>();
}

Victim ReadVictim(const Json& json) {
  Victim victim;
  victim.worker = {json.at("worker").get<uint64_t>()};
  victim.slot = ReadSlot(json);
  if (const Json& rank = json.at("rank"); !rank.is_null()) {
    victim.rank = rank.get<uint32_t>();
  }
  victim.pid = OrZero<int64_t>(json.at("pid"));
  victim.fate = Named<Fate>(kFates, json.at("fate"));
  if (const Json& code = json.at("code"); !code.is_null()) {
    victim.code = code.get<int>();
  }
  victim.signal = OrZero<int>(json.at("signal"));
  victim.ended_by_us = json.at("ended_by_muster").get<bool>();
  return victim;
}

Json ToJson(const Newcomer& newcomer) {
  Json json = Place(newcomer.worker, newcomer.slot);
  json["rank"] = newcomer.rank;
  return json;
}

Newcomer ReadNewcomer(const Json& json) {
  return {{json.at("worker").get<uint64_t>()}, ReadSlot(json), json.at("rank").get<uint32_t>()};
}

Json ToJson(const Evidence& evidence) {
  return {{"s", Seconds(evidence.at)}, {"from", evidence.from}, {"text", evidence.text}};
}

Evidence ReadEvidence(const Json& json) {
  return {ReadSeconds(json.at("s")),
          json.at("from").get<std::string>(),
          json.at("text").get<std::string>()};
}

template <class T>
Json List(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) {
    list.push_back(ToJson(value));
  }
  return list;
}

template <class T>
void ReadList(const Json& list, T (*read)(const Json&), std::vector<T>& values) {
  for (const Json& value : list.get_ref<const Json::array_t&>()) {
    values.push_back(read(value));
  }
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json World(Generation generation, uint32_t size) {
  return {{"generation", generation.value}, {"size", size}};
}

JobRecord ReadJobRecord(const Json& json) {
  JobRecord job;
  job.id = json.at("job").get<std::string>();
  job.command = json.at("command").get<std::string>();
  job.version = json.at("version").get<std::string>();
  job.host = json.at("host").get<std::string>();
  job.pid = json.at("pid").get<int64_t>();
  job.started_ms = json.at("started_ms").get<int64_t>();
  job.elastic = json.at("elastic").get<bool>();
  return job;
}

Incident ReadIncident(const Json& json) {
  Incident incident;
  incident.number = json.at("number").get<uint64_t>();
  incident.kind = Named<IncidentKind>(kKinds, json.at("kind"));
  incident.outcome = Named<Outcome>(kOutcomes, json.at("outcome"));
  incident.generation_before = {json.at("before").at("generation").get<uint64_t>()};
  incident.size_before = json.at("before").at("size").get<uint32_t>();
  if (const Json& after = json.at("after"); !after.is_null()) {
    incident.generation_after = {after.at("generation").get<uint64_t>()};
    incident.size_after = after.at("size").get<uint32_t>();
  }
  ReadList(json.at("victims"), &ReadVictim, incident.victims);
  ReadList(json.at("newcomers"), &ReadNewcomer, incident.newcomers);
  incident.left_out = json.at("left_out").get<size_t>();
  ReadList(json.at("evidence"), &ReadEvidence, incident.evidence);
  ReadList(json.at("decisions"), &ReadEvidence, incident.decisions);
  const Json& phases = json.at("phases");
  incident.phases = {ReadMaybeSeconds(phases.at("evidence_s")),
                     ReadMaybeSeconds(phases.at("revoke_s")),
                     ReadMaybeSeconds(phases.at("form_s")),
                     ReadMaybeSeconds(phases.at("formed_s")),
                     ReadMaybeSeconds(phases.at("synced_s"))};
  incident.newest_known = ReadCommit(json.at("newest_known"));
  incident.resumed = ReadCommit(json.at("resumed"));
  if (const Json& code = json.at("exit_code"); !code.is_null()) {
    incident.exit_code = code.get<int>();
  }
  incident.cause = json.at("cause").get<std::string>();
  return incident;
}

}  // namespace

std::string UtcText(int64_t ms_since_1970) {
  const std::time_t seconds = ms_since_1970 / 1000;
  std::tm time{};
  ::gmtime_r(&seconds, &time);
  std::array<char, 64> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &time);
  std::snprintf(text.data() + size,
                text.size() - size,
                ".%03dZ",
                static_cast<int>(ms_since_1970 - seconds * 1000));
  return text.data();
}

std::string ToJsonLine(const JobRecord& job) {
  return Line({{"record", "job"},
               {"job", job.id},
               {"command", job.command},
               {"version", job.version},
               {"host", job.host},
               {"pid", job.pid},
               {"started", UtcText(job.started_ms)},
               {"started_ms", job.started_ms},
               {"elastic", job.elastic}});
}

std::string ToJsonLine(const Incident& incident, const JobRecord& job) {
  const Duration begin = incident.phases.evidence.value_or(Duration::zero());
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(begin).count();
  const Phases& phases = incident.phases;
  Json json{{"record", "incident"},
            {"number", incident.number},
            {"time", UtcText(job.started_ms + ms)},
            {"kind", Name(kKinds, incident.kind)},
            {"outcome", Name(kOutcomes, incident.outcome)},
            {"before", World(incident.generation_before, incident.size_before)},
            {"after", nullptr},
            {"victims", List(incident.victims)},
            {"newcomers", List(incident.newcomers)},
            {"left_out", incident.left_out},
            {"evidence", List(incident.evidence)},
            {"decisions", List(incident.decisions)},
            {"phases",
             {{"evidence_s", MaybeSeconds(phases.evidence)},
              {"revoke_s", MaybeSeconds(phases.revoke)},
              {"form_s", MaybeSeconds(phases.form)},
              {"formed_s", MaybeSeconds(phases.formed)},
              {"synced_s", MaybeSeconds(phases.synced)},
              {"first_step", "not seen by the driver; follows synced_s at once"}}},
            {"newest_known", Commit(incident.newest_known)},
            {"resumed", Commit(incident.resumed)},
            {"exit_code", incident.exit_code ? Json(*incident.exit_code) : Json(nullptr)},
            {"cause", incident.cause}};
  if (incident.generation_after.value != 0) {
    json["after"] = World(incident.generation_after, incident.size_after);
  }
  return Line(json);
}

Result<Record> ParseJsonLine(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Status::Invalid("not a JSON object");
  }
  try {
    const std::string record = json.at("record").get<std::string>();
    if (record == "job") {
      return Record(ReadJobRecord(json));
    }
    if (record == "incident") {
      return Record(ReadIncident(json));
    }
    return Status::Invalid("a record of an unknown kind");
  } catch (const std::exception& error) {
    return Status::Invalid(error.what());
  }
}

}  // namespace muster::launcher
