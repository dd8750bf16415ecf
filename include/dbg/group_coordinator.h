// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A logical group of ranks (tp, pp, moe_ep ...) as a pair of process groups, device and cpu, that carry its name.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dbg/export.h"
#include "dbg/label_report.h"
#include "dbg/reduce_op.h"
#include "dbg/world.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace dbg {

class GroupCoordinator;

namespace distributed {
struct GroupHalf;
/// For dbg's own sources: what objects and barriers go over. Throws: LogicError when the group was closed.
GroupHalf& cpu_half_of(const GroupCoordinator& group);
}  // namespace distributed

/// How a group is made. Members pass the same.
struct GroupOptions {
  /// What the group means: letters, digits and `_ - . :`. Empty: `anonymous`. Both halves carry it: `tp:device`,
  /// `tp:cpu`.
  std::string group_name = {};
  /// `auto` (nccl where a GPU and NCCL are, else gloo), `gloo`, `nccl`, or a name given to `register_backend`.
  /// torch 2.15 has two NCCL classes that do not meet each other: `nccl2` and `nccl-legacy`; `nccl` is, as in Python,
  /// the first, or with TORCH_DIST_USE_NCCL2=0 the second. `nccl2` takes the thread's current GPU when that is not GPU
  /// 0, else the one of the local rank.
  std::string device_backend = "auto";
  /// `gloo`, or a name given to `register_backend`.
  std::string cpu_backend = "gloo";
  /// For making the group as a whole, and later for each operation. 0: the world's.
  std::chrono::milliseconds timeout{0};
  /// Compares operation, reduction, root, sizes and dtype between the members before each collective, so that a
  /// mismatch is an error on every rank (handshake_mismatch with all values), after which the group goes on. Without it
  /// gloo ends the process on unlike sizes and misreads unlike dtypes. Costs a round trip each, over a gloo group of
  /// its own. Messages between two are not compared. Among Python ranks (`join_python`) it is torch's own wrapper, as
  /// they have it with TORCH_DISTRIBUTED_DEBUG=DETAIL: the same on all, or nobody meets.
  bool check = false;
  /// `c10d::ProcessGroupNCCL::Options` or what the registered backend takes. Copied, never changed.
  /// Refused with `gloo`, which takes none; unused where `auto` is gloo.
  c10::intrusive_ptr<c10::intrusive_ptr_target> device_options = {};
  /// Off, the group says nothing of itself in any channel: to see what labels cost, and to prove that tests can fail.
  bool with_labels = true;
};

/// What is known of groups that somebody else made.
struct AdoptOptions {
  /// Characters that a label can't hold are replaced, and a line in the log says so.
  std::string group_name = {};
  /// Global ranks of the members, in the group's order. Empty: 0 to size - 1.
  std::vector<int> ranks = {};
  /// Of operations. 0: five minutes.
  std::chrono::milliseconds timeout{0};
};

/// Which of Python's groups to meet; decides where in the store its members look for each other.
struct PythonGroup {
  enum class Kind {
    world,     ///< `torch.distributed.init_process_group`'s own group, made by a rendezvous (env://, tcp://, file://)
    subgroup,  ///< one of its `new_group`s, by the name that Python shows
    custom,    ///< made over a store of its own under a name, as SGLang's `init_custom_process_group` does
  };
  Kind kind = Kind::world;
  std::string name = {};        ///< of a subgroup or a custom group
  std::vector<int> ranks = {};  ///< global ranks of the members, in order. Empty: all of the world
};

/// Values under unique names, in order. A value that is a tensor travels as one; tensors deeper inside a value travel
/// within its pickle.
using TensorDict = std::vector<std::pair<std::string, c10::IValue>>;

/// How one operation is run.
struct OperationOptions {
  std::chrono::milliseconds timeout{0};  ///< 0: the group's
};

/// One logical group and this rank's place in it.
///
/// Threads: calls that communicate: one thread at a time; the rest, close() too, is safe to call from any thread.
/// Ranks may be threads of one process. Destroy groups in the reverse order of their creation, on all members.
class DBG_API GroupCoordinator {
 public:
  /// Makes the group of which this rank is a member.
  ///
  /// Collective: the members only; ranks in none of the lists return null at once. Members first meet in the store: all
  /// are there and of one opinion, or every one of them gets an error that says who is missing or what differs, within
  /// the timeout and a second.
  /// `group_ranks`: lists of global ranks, disjoint; the order within a list is the order within the group.
  /// Throws: ConfigError on lists or options that make no sense; CommError (handshake_mismatch, peer_missing,
  /// peer_lost, timeout, store_down).
  static std::shared_ptr<GroupCoordinator> create(const World& world, const std::vector<std::vector<int>>& group_ranks,
                                                  const GroupOptions& options = {});

  /// Takes over groups that are there: labels them, and never shuts them down. `cpu` may be null when `world` is given:
  /// that half is then made, which is collective.
  /// Throws: ConfigError when `device` is null or its size is another than that of `ranks`; as `create` for a cpu half.
  static std::shared_ptr<GroupCoordinator> adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& device,
                                                 const c10::intrusive_ptr<c10d::ProcessGroup>& cpu,
                                                 const AdoptOptions& options, const World* world = nullptr);
  /// The same for a bare backend, which gets a process group around it.
  static std::shared_ptr<GroupCoordinator> adopt(const c10::intrusive_ptr<c10d::Backend>& device,
                                                 const c10::intrusive_ptr<c10d::Backend>& cpu,
                                                 const AdoptOptions& options, const World* world = nullptr);
  /// The same for a group of this process's registry, by the name that `torch.distributed` gave it.
  /// Throws: ConfigError when there is none of that name.
  static std::shared_ptr<GroupCoordinator> adopt_registered(const std::string& registered_name,
                                                            const AdoptOptions& options, const World* world = nullptr);

  /// Meets Python ranks in one gloo group, under exactly the keys that they use: no handshake, no generation. Both
  /// halves are that one group, labelled `NAME:cpu`. The world's store is the one Python's `init_process_group` uses
  /// (torchrun's, say), or the store passed to the custom group. Collective: with the Python ranks that make the group.
  static std::shared_ptr<GroupCoordinator> join_python(const World& world, const PythonGroup& group,
                                                       const GroupOptions& options = {});

  ~GroupCoordinator();
  GroupCoordinator(const GroupCoordinator&) = delete;
  GroupCoordinator& operator=(const GroupCoordinator&) = delete;

  const std::string& group_name() const noexcept;
  /// Global ranks of the members, in the group's order.
  const std::vector<int>& ranks() const noexcept;
  /// How many members. (The twin's name for it.)
  int world_size() const noexcept;
  /// This rank's global number.
  int rank() const noexcept;
  int rank_in_group() const noexcept;
  int local_rank() const noexcept;
  int first_rank() const noexcept;
  int last_rank() const noexcept;
  /// The member after this one, around the end.
  int next_rank() const noexcept;
  int prev_rank() const noexcept;
  bool is_first_rank() const noexcept;
  bool is_last_rank() const noexcept;
  std::chrono::milliseconds timeout() const noexcept;

  /// Further names of the same ranks (`tp` and `attn_tp`, say), in the order they were added.
  std::vector<std::string> aliases() const;
  /// Throws: ConfigError when the name can't stand in a label.
  void add_alias(const std::string& name);

  /// The process groups and what operations on them go to; null after close().
  c10::intrusive_ptr<c10d::ProcessGroup> device_group() const;
  c10::intrusive_ptr<c10d::ProcessGroup> cpu_group() const;
  /// Under these names `torch.distributed` in this process finds them (`_resolve_process_group`); empty for adopted
  /// ones.
  std::string device_registered_name() const;
  std::string cpu_registered_name() const;
  /// `gloo`, `nccl`, or a registered name.
  std::string device_backend() const;

  // Operations. Ranks in arguments are ranks within the group.
  //
  // Collective: every member calls them in the same order, with tensors of the same shape and dtype (`check` compares
  // that; bare gloo ends the process on unlike sizes). Tensors may have any strides. Tensors go over the device half,
  // CPU tensors over the cpu half where the device half is NCCL; barriers and objects over the cpu half. Throws:
  // ConfigError for arguments that no group could serve; CommError within the timeout and a second. After a timeout or
  // a lost peer the group is broken and says so. LogicError after close().

  /// Replaces `tensor` by the reduction of all members' tensors.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, const OperationOptions& options = {});
  /// The members' tensors joined along `dim`, in the group's order.
  at::Tensor all_gather(const at::Tensor& tensor, std::int64_t dim = -1, const OperationOptions& options = {});
  std::vector<at::Tensor> all_gather_list(const at::Tensor& tensor, const OperationOptions& options = {});
  /// Reduces all members' tensors and gives each member its part along `dim`.
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, std::int64_t dim = 0,
                            const OperationOptions& options = {});
  /// As all_gather, on one member; the others get an undefined tensor.
  at::Tensor gather(const at::Tensor& tensor, int dst = 0, std::int64_t dim = -1, const OperationOptions& options = {});
  /// Replaces `tensor` by that of one member.
  void broadcast(const at::Tensor& tensor, int src = 0, const OperationOptions& options = {});
  /// To another member, under the same tag on both sides.
  void send(const at::Tensor& tensor, int dst, int tag = 0, const OperationOptions& options = {});
  void recv(const at::Tensor& tensor, int src, int tag = 0, const OperationOptions& options = {});
  /// Returns when every member has called it.
  void barrier(const OperationOptions& options = {});
  /// The same, and names who does not come to all that did: CommError (peer_missing).
  void monitored_barrier(const OperationOptions& options = {});

  // Values other than tensors, over the cpu half, as torch.distributed sends them: Python ranks can be members. They
  // travel as pickles, which are read by an allow-list; received lengths are bounded before anything is allocated.

  /// The object of one member, on all. The others' `object` is ignored.
  c10::IValue broadcast_object(const c10::IValue& object, int src = 0, const OperationOptions& options = {});
  /// The objects of all members, in the group's order.
  std::vector<c10::IValue> all_gather_object(const c10::IValue& object, const OperationOptions& options = {});
  /// The same on one member; the others get nothing.
  std::vector<c10::IValue> gather_object(const c10::IValue& object, int dst = 0, const OperationOptions& options = {});
  void send_object(const c10::IValue& object, int dst, const OperationOptions& options = {});
  c10::IValue recv_object(int src, const OperationOptions& options = {});

  // Named tensors and values, as SGLang and vLLM send them between pipeline stages: metadata as an object over the cpu
  // half, then the tensors in order, those without elements left out.

  TensorDict broadcast_tensor_dict(const TensorDict& dict, int src = 0, const OperationOptions& options = {});
  /// To the member after this one, around the end.
  void send_tensor_dict(const TensorDict& dict, const OperationOptions& options = {});
  void send_tensor_dict(const TensorDict& dict, int dst, const OperationOptions& options = {});
  /// From the member before this one, around the end.
  TensorDict recv_tensor_dict(const OperationOptions& options = {});
  TensorDict recv_tensor_dict(int src, const OperationOptions& options = {});

  /// One line: name, ranks, backends, state.
  std::string describe() const;
  /// What tools see of the label, channel by channel.
  LabelReport label_report() const;

  /// Writes all groups of this process into the trace of the torch profiler that runs now, as torch.profiler does in
  /// Python (`distributedInfo`). Call it between the profiler's start and its end; else torch logs a warning.
  static void annotate_trace();

  /// Waits for the other members' close (best effort; not where the group is broken), then ends what this object made,
  /// and deletes its keys; all of it within `bound` and a second. After a failure the short notes of it stay in the
  /// store for members that come later; the last one to close deletes them. An operation that another thread is in goes
  /// on to its own end or deadline. Further calls do nothing. What is adopted lives on. Never throws. The destructor
  /// does the same with a bound of one second.
  void close(std::chrono::milliseconds bound = std::chrono::seconds(5)) noexcept;
  bool is_closed() const noexcept;

  struct Impl;  ///< for dbg's own sources

 private:
  friend distributed::GroupHalf& distributed::cpu_half_of(const GroupCoordinator& group);
  explicit GroupCoordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dbg
