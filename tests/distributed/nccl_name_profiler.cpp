// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A profiler plugin of NCCL that does one thing: it writes down the name which each communicator says it has, a line
// "NAME RANK SIZE" each, into the file that DBG_TEST_NCCL_NAMES names. NCCL loads it by NCCL_PROFILER_PLUGIN.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// Version 4 of the plugin's table, which NCCL 2.27 and newer ask for; all types that are not looked into are untyped.
struct ProfilerTable {
  const char* name;
  int (*init)(void** context, int* events, const char* comm_name, std::uint64_t comm_hash, int nodes, int ranks,
              int rank, void (*log)());
  int (*start_event)(void* context, void** handle, void* description);
  int (*stop_event)(void* handle);
  int (*record_event_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};

int write_name(void** context, int* events, const char* comm_name, std::uint64_t, int, int ranks, int rank,
               void (*)()) {
  *context = nullptr;
  *events = 0;
  const char* path = std::getenv("DBG_TEST_NCCL_NAMES");
  std::FILE* file = path != nullptr ? std::fopen(path, "a") : nullptr;
  if (file == nullptr) return 0;
  std::fprintf(file, "%s %d %d\n", comm_name != nullptr ? comm_name : "(none)", rank, ranks);
  std::fclose(file);
  return 0;
}

int start_nothing(void*, void** handle, void*) {
  *handle = nullptr;
  return 0;
}
int stop_nothing(void*) {
  return 0;
}
int record_nothing(void*, int, void*) {
  return 0;
}
int end_nothing(void*) {
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ProfilerTable ncclProfiler_v4;
const ProfilerTable ncclProfiler_v4 = {"dbg_names",  write_name,     start_nothing,
                                       stop_nothing, record_nothing, end_nothing};
