// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes, moves, copies and destroys each public type where nothing of c10d is known but its names: what a client's code
// with such a member asks of the compiler. Compiled as C++17 and as C++20, and never run.
#include <memory>
#include <type_traits>
#include <utility>

#include "dbg/backend_factory.h"
#include "dbg/broadcast_topology.h"
#include "dbg/compare.h"
#include "dbg/config.h"
#include "dbg/dims.h"
#include "dbg/dump_record.h"
#include "dbg/dumper.h"
#include "dbg/error.h"
#include "dbg/grafter.h"
#include "dbg/group_coordinator.h"
#include "dbg/label_report.h"
#include "dbg/model_parallel.h"
#include "dbg/model_parallel_layout.h"
#include "dbg/model_walk.h"
#include "dbg/model_weights.h"
#include "dbg/parallel_state.h"
#include "dbg/participant.h"
#include "dbg/plugin.h"
#include "dbg/read_limits.h"
#include "dbg/safetensors.h"
#include "dbg/sync_report.h"
#include "dbg/tags.h"
#include "dbg/tensor_info.h"
#include "dbg/weight_broadcaster.h"
#include "dbg/weight_source.h"
#include "dbg/world.h"

namespace {

template <class T>
struct Usable {
  static_assert(sizeof(T) > 0);
  static_assert(std::is_nothrow_destructible_v<T>);
  static void destroy(std::unique_ptr<T> owned) { owned.reset(); }
  static void make() {
    if constexpr (std::is_default_constructible_v<T>) static_cast<void>(std::make_unique<T>());
  }
  static void hand_on([[maybe_unused]] T& one, [[maybe_unused]] const T& other) {
    if constexpr (std::is_copy_constructible_v<T>) static_cast<void>(std::make_unique<T>(other));
    if constexpr (std::is_move_constructible_v<T>) static_cast<void>(std::make_unique<T>(std::move(one)));
    if constexpr (std::is_copy_assignable_v<T>) one = other;
  }
};

// A type a line, for public_headers.cmake, which looks whether one is missing.
template struct Usable<dbg::BackendRequest>;
template struct Usable<dbg::BackendRegistration>;
template struct Usable<dbg::WorkerMetadata>;
template struct Usable<dbg::WorkerPlace>;
template struct Usable<dbg::BroadcastTopology>;
template struct Usable<dbg::CompareOptions>;
template struct Usable<dbg::CastDifference>;
template struct Usable<dbg::OddReplica>;
template struct Usable<dbg::TensorPicture>;
template struct Usable<dbg::PairReport>;
template struct Usable<dbg::Landmark>;
template struct Usable<dbg::Divergence>;
template struct Usable<dbg::StepReport>;
template struct Usable<dbg::UnpairedReport>;
template struct Usable<dbg::UnreadableReport>;
template struct Usable<dbg::CompareReport>;
template struct Usable<dbg::DumperConfig>;
template struct Usable<dbg::ConfigKnob>;
template struct Usable<dbg::DimShard>;
template struct Usable<dbg::Dim>;
template struct Usable<dbg::Dims>;
template struct Usable<dbg::IndexRange>;
template struct Usable<dbg::ShardOptions>;
template struct Usable<dbg::Shard>;
template struct Usable<dbg::ReplicaDifference>;
template struct Usable<dbg::Unsharded>;
template struct Usable<dbg::DumpRecord>;
template struct Usable<dbg::RecordOptions>;
template struct Usable<dbg::DumpOptions>;
template struct Usable<dbg::DumpModelOptions>;
template struct Usable<dbg::DumpModelReport>;
template struct Usable<dbg::DumperCounters>;
template struct Usable<dbg::DumperState>;
template struct Usable<dbg::Interception>;
template struct Usable<dbg::PluginHandle>;
template struct Usable<dbg::CaptureScope>;
template struct Usable<dbg::Dumper>;
template struct Usable<dbg::ContextScope>;
template struct Usable<dbg::Error>;
template struct Usable<dbg::ConfigError>;
template struct Usable<dbg::IoError>;
template struct Usable<dbg::CommFailure>;
template struct Usable<dbg::CommError>;
template struct Usable<dbg::LogicError>;
template struct Usable<dbg::GraftConfig>;
template struct Usable<dbg::GraftPlace>;
template struct Usable<dbg::GraftInput>;
template struct Usable<dbg::GraftTransformHandle>;
template struct Usable<dbg::GraftCounters>;
template struct Usable<dbg::GraftState>;
template struct Usable<dbg::Grafter>;
template struct Usable<dbg::GroupOptions>;
template struct Usable<dbg::AdoptOptions>;
template struct Usable<dbg::PythonGroup>;
template struct Usable<dbg::OperationOptions>;
template struct Usable<dbg::GroupCoordinator>;
template struct Usable<dbg::LabelChannel>;
template struct Usable<dbg::LabelReport>;
template struct Usable<dbg::ModelParallel>;
template struct Usable<dbg::ParallelSizes>;
template struct Usable<dbg::ParallelGroup>;
template struct Usable<dbg::ModelParallelLayout>;
template struct Usable<dbg::NamedParameter>;
template struct Usable<dbg::ExtraModule>;
template struct Usable<dbg::TensorListSource>;
template struct Usable<dbg::TensorListSink>;
template struct Usable<dbg::TensorMapSink>;
template struct Usable<dbg::SafetensorsSource>;
template struct Usable<dbg::ParallelAxis>;
template struct Usable<dbg::ParallelState>;
template struct Usable<dbg::Participant>;
template struct Usable<dbg::ParticipantScope>;
template struct Usable<dbg::ModelInfo>;
template struct Usable<dbg::FrameworkPlugin>;
template struct Usable<dbg::PipelineLayerOffsetPlugin>;
template struct Usable<dbg::ReadLimits>;
template struct Usable<dbg::SafetensorsInfo>;
template struct Usable<dbg::SafetensorsFile>;
template struct Usable<dbg::ConsumerCommit>;
template struct Usable<dbg::SyncReport>;
template struct Usable<dbg::TagView>;
template struct Usable<dbg::TagRef>;
template struct Usable<dbg::TagValue>;
template struct Usable<dbg::Tags>;
template struct Usable<dbg::TensorInfo>;
template struct Usable<dbg::TensorDiff>;
template struct Usable<dbg::LinkRates>;
template struct Usable<dbg::BroadcastOptions>;
template struct Usable<dbg::BroadcastRole>;
template struct Usable<dbg::SyncError>;
template struct Usable<dbg::WeightBroadcaster>;
template struct Usable<dbg::WeightInfo>;
template struct Usable<dbg::Weight>;
template struct Usable<dbg::WeightSource>;
template struct Usable<dbg::WeightSink>;
template struct Usable<dbg::WorldOptions>;
template struct Usable<dbg::TcpStoreAddress>;
template struct Usable<dbg::World>;

}  // namespace
