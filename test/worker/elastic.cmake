# State, elastic::run and faults over a fake runtime: they link neither engine nor gRPC, so that a
# test of theirs fails for a reason of theirs.
set(root ${PROJECT_SOURCE_DIR})
add_library(
  muster_elastic_under_test STATIC
  ${root}/worker/core/commit_ledger.cc
  ${root}/worker/core/dtype.cc
  ${root}/worker/core/sample_deal.cc
  ${root}/worker/core/sample_order.cc
  ${root}/worker/elastic.cc
  ${root}/worker/elastic_manifest.cc
  ${root}/worker/elastic_run.cc
  ${root}/worker/elastic_snapshot.cc
  ${root}/worker/elastic_sync.cc
  ${root}/worker/elastic_transfer.cc
  ${root}/worker/fault.cc
  ${root}/worker/operation.cc
  ${root}/worker/sampler.cc
  ${root}/worker/trace_fields.cc
  ${root}/test/support/fake_runtime.cc
  ${root}/test/support/thread_runtime.cc)
target_include_directories(muster_elastic_under_test PUBLIC ${root} ${root}/worker/include)
target_link_libraries(muster_elastic_under_test PUBLIC muster::common nlohmann_json::nlohmann_json
                                                       muster_options)

muster_test(
  worker_elastic_test
  LABEL unit
  SOURCES core/commit_ledger_test.cc
          elastic_manifest_test.cc
          elastic_run_test.cc
          elastic_snapshot_test.cc
          elastic_sync_test.cc
          elastic_test.cc
          elastic_transfer_test.cc
          fault_test.cc
          sampler_test.cc
  LIBRARIES muster_elastic_under_test)
