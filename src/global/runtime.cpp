// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes the process's own Dumper at its first use.
#include "dbg/runtime.h"

#include <unistd.h>

#include <new>

#include "base/fence.h"
#include "base/log.h"
#include "dump/part_name.h"

namespace dbg {

namespace detail {
std::atomic<unsigned char> global_enabled{2};
}  // namespace detail

namespace {

// Null until the first use. Never destroyed: threads may dump while the process exits.
std::atomic<Dumper*> instance{nullptr};

// The process in which a thread is making the Dumper, or 0. Not the guard of a local static: a child that is forked
// meanwhile would wait for that thread for ever.
std::atomic<pid_t> maker{0};

// While it lives, this thread makes the Dumper; then the others may look again. Nothing foreign is called meanwhile: it
// could wait for one of them, or want the Dumper itself.
struct Making {
  ~Making() {
    maker.store(0);
    maker.notify_all();
  }
};

DumperConfig config_or_off() {
  try {
    return DumperConfig::from_env();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    base::log(LogLevel::error, detail::kPart, "DUMPING IS OFF: {}", base::describe_current_exception());
    return DumperConfig();
  }
}

// Like a wrong value of any other knob, it never stops the program. Nobody is met here: that is for the first dump that
// matches.
void graft_or_not(Dumper& made) {
  if (const auto cause = base::run_fenced([&] { graft_by_knobs(made); })) {
    base::log(LogLevel::error, "Grafter", "GRAFTING IS OFF: {}", *cause);
  }
}

// A child that was forked while its parent made the Dumper: like any other forked child, it does without.
DumperConfig config_of_forked_child() {
  base::log_past_handler(LogLevel::warning, detail::kPart,
                         "this process was forked while another thread made the global Dumper: dumping is off here. "
                         "Make a Dumper after the fork, or start workers by exec.");
  return DumperConfig();
}

}  // namespace

Dumper& Dumper::global() {
  for (;;) {
    if (Dumper* made = instance.load(std::memory_order_acquire)) return *made;
    const pid_t own = ::getpid();
    pid_t seen = maker.load();
    if (seen == own) {
      maker.wait(own);
    } else if (const bool is_forked_meanwhile = seen != 0; maker.compare_exchange_strong(seen, own)) {
      const base::HeldLines lines;  // outlives `making`: log handlers are foreign code
      const Making making;
      if (instance.load(std::memory_order_acquire) != nullptr) continue;
      Dumper* made =
          new Dumper(is_forked_meanwhile ? config_of_forked_child() : config_or_off(), &detail::global_enabled);
      graft_or_not(*made);
      instance.store(made, std::memory_order_release);
    }
  }
}

Dumper* detail::global_or_none() {
  try {
    return &Dumper::global();
  } catch (const std::bad_alloc&) {
    base::log(LogLevel::error, detail::kPart, "there is no memory for the global Dumper; the next call tries again");
    return nullptr;
  }
}

}  // namespace dbg
