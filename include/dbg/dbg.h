// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Everything there is to include, at once.
#pragma once

#include "dbg/backend_factory.h"        // IWYU pragma: export
#include "dbg/broadcast_topology.h"     // IWYU pragma: export
#include "dbg/compare.h"                // IWYU pragma: export
#include "dbg/config.h"                 // IWYU pragma: export
#include "dbg/dims.h"                   // IWYU pragma: export
#include "dbg/dump_record.h"            // IWYU pragma: export
#include "dbg/dumper.h"                 // IWYU pragma: export
#include "dbg/error.h"                  // IWYU pragma: export
#include "dbg/grafter.h"                // IWYU pragma: export
#include "dbg/group_coordinator.h"      // IWYU pragma: export
#include "dbg/label_report.h"           // IWYU pragma: export
#include "dbg/log.h"                    // IWYU pragma: export
#include "dbg/model_parallel.h"         // IWYU pragma: export
#include "dbg/model_parallel_layout.h"  // IWYU pragma: export
#include "dbg/model_weights.h"          // IWYU pragma: export
#include "dbg/parallel_state.h"         // IWYU pragma: export
#include "dbg/participant.h"            // IWYU pragma: export
#include "dbg/plugin.h"                 // IWYU pragma: export
#include "dbg/read_limits.h"            // IWYU pragma: export
#include "dbg/reduce_op.h"              // IWYU pragma: export
#include "dbg/runtime.h"                // IWYU pragma: export
#include "dbg/safetensors.h"            // IWYU pragma: export
#include "dbg/sync_report.h"            // IWYU pragma: export
#include "dbg/tags.h"                   // IWYU pragma: export
#include "dbg/tensor_info.h"            // IWYU pragma: export
#include "dbg/version.h"                // IWYU pragma: export
#include "dbg/weight_broadcaster.h"     // IWYU pragma: export
#include "dbg/weight_source.h"          // IWYU pragma: export
#include "dbg/world.h"                  // IWYU pragma: export
