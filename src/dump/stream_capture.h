// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Is this thread's CUDA stream being captured into a graph? Then a dump must not touch it: no copy, no synchronisation.
#pragma once

namespace dbg {

/// Answers for the calling thread. Never throws, never initialises CUDA.
using StreamCaptureProbe = bool (*)() noexcept;

/// Whether the calling thread's current CUDA stream is capturing; false without CUDA.
bool is_stream_capturing() noexcept;

/// Replaces the probe (the seam that tests fake); nullptr restores the real one.
void set_stream_capture_probe(StreamCaptureProbe probe) noexcept;

}  // namespace dbg
