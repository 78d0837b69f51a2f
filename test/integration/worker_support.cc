#include "worker_support.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "muster/muster.h"

namespace muster::test {

Arguments::Arguments(int argc, char** argv, const char* usage) {
  for (int i = 1; i + 1 < argc; i += 2) {
    values_[argv[i]] = argv[i + 1];
  }
  if (argc % 2 == 0) {
    std::cerr << usage << "\n";
    std::exit(2);  // NOLINT(concurrency-mt-unsafe): before any thread.
  }
}

std::string Arguments::Text(const std::string& name) const {
  const auto it = values_.find("--" + name);
  return it == values_.end() ? "" : it->second;
}

int64_t Arguments::Number(const std::string& name, int64_t otherwise) const {
  const std::string text = Text(name);
  return text.empty() ? otherwise : std::stoll(text);
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any.
  return value == nullptr ? "" : value;
}

EventLog::EventLog() : trace_(Environment("TEST_LOG")) {}

void EventLog::Write(const char* event, nlohmann::json fields) const {
  fields["host"] = Environment("MUSTER_HOST");
  if (muster::is_initialized()) {
    fields["rank"] = muster::rank();
    fields["size"] = muster::size();
    fields["local_rank"] = muster::local_rank();
    fields["local_size"] = muster::local_size();
    fields["cross_rank"] = muster::cross_rank();
    fields["cross_size"] = muster::cross_size();
    fields["slot"] = muster::slot();
  }
  trace_.Write(event, std::move(fields));
}

void EventLog::WriteWithoutPlace(const char* event) const {
  trace_.Write(event, nlohmann::json::object());
}

}  // namespace muster::test
