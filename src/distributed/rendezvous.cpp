// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The handshake's two sides: the leader gathers, checks and gives the word; members answer.
#include "distributed/rendezvous.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/version.h"
#include "distributed/handshake_record.h"
#include "distributed/labels.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// For what is said and asked once the deadline has passed.
constexpr std::chrono::milliseconds kStoreGrace{500};

std::string opinion_key(int rank) {
  return formatted("o{}", rank);
}
std::string label_key(int rank) {
  return formatted("r{}", rank);
}
std::string mail_key(const std::string& nonce) {
  return "m/" + nonce;
}
std::string answer_key(const std::string& nonce) {
  return "a/" + nonce;
}
std::string go_key(const std::string& leaders_nonce) {
  return "g/" + leaders_nonce;
}

// What ends a handshake on this rank; becomes a CommError, and is told to the others.
struct Verdict {
  CommErrorKind kind = CommErrorKind::peer_missing;
  std::vector<int> peers;
  std::string cause;
};

class Handshake {
 public:
  Handshake(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix, const HandshakeRequest& request)
      : request_(request),
        began_(Clock::now()),
        deadline_(began_ + request.timeout),
        store_(c10::make_intrusive<TrackedStore>(store, formatted("{}/hs/{}", prefix, request.name))),
        labels_(c10::make_intrusive<TrackedStore>(store, formatted("{}/at/{}", prefix, ranks_text(request.ranks)))),
        generations_(c10::make_intrusive<TrackedStore>(store, prefix + "/gen")),
        own_(HandshakeRecord::of_this_process()) {
    own_.rank = request.ranks.at(static_cast<std::size_t>(request.rank_in_group));
    own_.ranks = request.ranks;
    own_.settings = request.settings;
    own_.settings["version of dbg"] = version();
    own_.settings["version of torch"] = compiled_torch_version();
    own_.binds_to_loopback = request.binds_to_loopback;
  }

  HandshakeResult run() {
    std::optional<Verdict> verdict;
    HandshakeResult result;
    const auto cause = base::run_fenced([&] {
      const StoreDeadline in_time(deadline_ + kStoreGrace);
      verdict = announce();
      if (!verdict) verdict = request_.rank_in_group == 0 ? lead(result) : follow(result);
      if (verdict) {
        give_up(*verdict);
      } else {
        take_back();
      }
    });
    if (cause) verdict = Verdict{CommErrorKind::store_down, {}, formatted("the store failed: {}", *cause)};
    if (!verdict) {
      result.keys = store_;
      return result;
    }
    CommFailure failure;
    failure.kind = verdict->kind;
    failure.group = formatted("{}@{}", request_.name, ranks_text(request_.ranks));
    failure.label = request_.name;
    failure.ranks = request_.ranks;
    failure.rank = own_.rank;
    failure.peers = verdict->peers;
    failure.operation = "create";
    failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
    failure.cause = verdict->cause;
    failure.advice = advice_for(verdict->kind);
    throw CommError(std::move(failure));
  }

 private:
  static const char* advice_for(CommErrorKind kind) {
    switch (kind) {
      case CommErrorKind::peer_missing:
        return "See whether that rank still runs and makes this group too, or raise the timeout";
      case CommErrorKind::handshake_mismatch:
        return "Make every member of the group pass the same name, ranks and options, from one process a rank";
      case CommErrorKind::store_down:
        return kAdviceStoreSilent;
      default:
        return "See what became of that rank";
    }
  }

  std::string record_key(int rank) const { return formatted("r{}@{}", rank, ranks_text(request_.ranks)); }

  std::optional<HandshakeRecord> read(const std::string& key) {
    const auto text = store_->peek(key);
    return text ? HandshakeRecord::from_json(*text) : std::nullopt;
  }

  std::optional<HandshakeRecord> record_of(int rank) { return read(record_key(rank)); }

  // The group of this name that a rank without a record here makes at the moment.
  std::optional<HandshakeRecord> opinion_of(int rank) {
    auto opinion = read(opinion_key(rank));
    const bool counts = opinion && opinion->rank == rank && opinion->gone.empty() && opinion->ranks != own_.ranks &&
                        opinion->is_alive().value_or(true);
    return counts ? opinion : std::nullopt;
  }

  // Whether a member has heard, or is about to hear, that its group comes about.
  bool has_word(const HandshakeRecord& member) {
    if (member.rank == member.ranks.front()) return store_->peek(go_key(member.nonce)).has_value();
    const auto text = store_->peek(mail_key(member.nonce));
    const auto mail = text ? HandshakeMail::from_json(*text) : std::nullopt;
    return mail && !mail->prepare.empty() && store_->peek(go_key(mail->prepare));
  }

  // Of a rank without a record here: it may wait for this one in a group of this name of other ranks, and neither would
  // ever come. A group that this rank is no member of is another one, which that rank makes first.
  std::optional<Verdict> unlike_opinion_of(int rank) {
    const auto opinion = opinion_of(rank);
    if (!opinion || std::find(opinion->ranks.begin(), opinion->ranks.end(), own_.rank) == opinion->ranks.end() ||
        has_word(*opinion)) {
      return std::nullopt;
    }
    // It may have heard, and gone on, between the two questions.
    const auto still = opinion_of(rank);
    if (!still || still->nonce != opinion->nonce || record_of(rank)) return std::nullopt;
    known_[rank] = opinion->nonce;
    const bool is_leader = rank == request_.ranks.front();
    return Verdict{CommErrorKind::handshake_mismatch,
                   {rank},
                   is_leader ? *difference_of(*opinion, own_) : *difference_of(own_, *opinion)};
  }

  void mail(const std::string& nonce, const HandshakeMail& what) { store_->put(mail_key(nonce), what.to_json()); }

  Verdict rival(const HandshakeRecord& other) const {
    return {CommErrorKind::handshake_mismatch,
            {own_.rank},
            formatted("two processes claim to be rank {}: pid {} on {}, and pid {} on {}", own_.rank, own_.pid,
                      own_.host, other.pid, other.host)};
  }

  // Leaves the own record. Another live process's under the same rank is a rival; what a dead one left is written over.
  std::optional<Verdict> announce() {
    for (const int rank : request_.rank_in_group == 0 ? request_.ranks : std::vector<int>{request_.ranks.front()}) {
      const auto record = record_of(rank);
      if (record && !record->gone.empty()) gone_before_.insert(record->nonce);
    }
    const auto before = record_of(own_.rank);
    store_->put(record_key(own_.rank), own_.to_json());
    store_->put(opinion_key(own_.rank), own_.to_json());
    labels_->put(label_key(own_.rank), request_.name);
    if (!before || !before->gone.empty() || !before->is_alive().value_or(false)) return std::nullopt;
    Verdict verdict = rival(*before);
    mail(before->nonce, {{}, verdict.kind, verdict.peers, verdict.cause});
    return verdict;
  }

  // A member that gave up while this one was here already has ended the attempt for all; one that did so before may
  // come again.
  std::optional<Verdict> farewell_in(const HandshakeRecord& record) const {
    if (record.gone.empty() || gone_before_.count(record.nonce) != 0) return std::nullopt;
    return Verdict{record.gone_kind, record.gone_peers, record.gone};
  }

  // What both sides look at each time round: bad news by mail, and whether the own record is still there.
  std::optional<Verdict> look_around(std::optional<HandshakeMail>& news) {
    if (const auto text = store_->peek(mail_key(own_.nonce))) {
      news = HandshakeMail::from_json(*text);
      if (news && news->prepare.empty()) return Verdict{news->kind, news->peers, news->cause};
    }
    const auto own = record_of(own_.rank);
    if (!own || own->nonce == own_.nonce) return std::nullopt;
    // Both may have looked before either wrote; the later one does not know yet.
    Verdict verdict = rival(*own);
    mail(own->nonce, {{}, verdict.kind, verdict.peers, verdict.cause});
    return verdict;
  }

  std::optional<Verdict> lead(HandshakeResult& result) {
    PollPause pause;
    std::vector<std::string> asked(request_.ranks.size());  // the nonce that was sent "prepare", per member
    std::set<std::size_t> answered{0};
    do {
      std::optional<HandshakeMail> news;
      if (auto verdict = look_around(news)) return verdict;
      // Also those that answered by silence so far are read again: what a dead process left may have been replaced.
      bool all_there = true;
      std::vector<std::string> nonces(request_.ranks.size());
      for (std::size_t i = 1; i < request_.ranks.size(); ++i) {
        if (answered.count(i) != 0) continue;
        const auto record = record_of(request_.ranks[i]);
        if (!record || !record->gone.empty()) {
          if (auto verdict = record ? farewell_in(*record) : unlike_opinion_of(request_.ranks[i])) return verdict;
          all_there = false;
          continue;
        }
        known_[record->rank] = record->nonce;
        if (const auto difference = difference_of(own_, *record)) {
          return Verdict{CommErrorKind::handshake_mismatch, {record->rank}, *difference};
        }
        nonces[i] = record->nonce;
      }
      if (!all_there) continue;
      for (std::size_t i = 1; i < request_.ranks.size(); ++i) {
        if (answered.count(i) != 0) continue;
        if (asked[i] != nonces[i]) {
          asked[i] = nonces[i];
          mail(asked[i], {own_.nonce, CommErrorKind::peer_missing, {}, {}});
        } else if (store_->peek(answer_key(asked[i]))) {
          answered.insert(i);
        }
      }
      if (answered.size() == request_.ranks.size()) {
        const std::string counter = formatted("{}@{}", request_.name, ranks_text(request_.ranks));
        result.generation = generations_->add(counter, 1) - 1;
        result.nonce = own_.nonce;
        store_->put(go_key(own_.nonce), std::to_string(result.generation));
        return std::nullopt;
      }
    } while (pause.wait(deadline_));
    return who_is_missing(std::any_of(asked.begin(), asked.end(), [](const auto& nonce) { return !nonce.empty(); }));
  }

  std::optional<Verdict> follow(HandshakeResult& result) {
    PollPause pause;
    std::string leader;  // the nonce of the leader that asked
    do {
      std::optional<HandshakeMail> news;
      if (auto verdict = look_around(news)) return verdict;
      if (leader.empty()) {
        const auto record = record_of(request_.ranks.front());
        if (record && !record->gone.empty()) {
          if (auto verdict = farewell_in(*record)) return verdict;
        } else if (record) {
          known_[record->rank] = record->nonce;
          if (const auto difference = difference_of(*record, own_)) {
            return Verdict{CommErrorKind::handshake_mismatch, {record->rank}, *difference};
          }
        } else if (auto verdict = unlike_opinion_of(request_.ranks.front())) {
          return verdict;
        }
      }
      if (news && news->prepare != leader) {
        leader = news->prepare;
        store_->put(answer_key(own_.nonce), "here");
        pause = PollPause();
      }
      if (!leader.empty()) {
        if (const auto go = store_->peek(go_key(leader))) {
          result.generation = std::stoll(*go);
          result.nonce = leader;
          return std::nullopt;
        }
      }
    } while (pause.wait(deadline_));
    return who_is_missing(!leader.empty());
  }

  // At the deadline: who never came, else who came and fell silent. The others' deadlines are about now, too, and one
  // that has given up is no more silent than this one. `all_were_there`: the leader has asked, which it does then.
  Verdict who_is_missing(bool all_were_there) {
    std::vector<int> never;
    std::vector<int> gone;
    std::vector<int> silent;
    std::string notes;
    std::string other_labels;
    std::optional<HandshakeRecord> of_another_opinion;
    for (const int rank : request_.ranks) {
      if (rank == own_.rank) continue;
      auto record = record_of(rank);
      if (record && record->gone.empty()) {
        const bool has_answered =
            rank == request_.ranks.front() ? all_were_there : store_->peek(answer_key(record->nonce)).has_value();
        if (has_answered) continue;
        // Who gives up says so before it takes its answer away.
        const auto now = record_of(rank);
        if (!now || now->gone.empty()) {
          silent.push_back(rank);
          continue;
        }
        record = now;
      }
      (record ? gone : never).push_back(rank);
      if (record && record->gone_kind == CommErrorKind::handshake_mismatch) of_another_opinion = record;
      if (record) notes += formatted("; {} was here and gave up: {}", record->who(), record->gone);
      if (!record) {
        if (const auto opinion = opinion_of(rank)) {
          notes += formatted("; {} makes the group '{}' of ranks [{}]", opinion->who(), request_.name,
                             fmt::join(opinion->ranks, ", "));
        }
      }
      const auto label = labels_->peek(label_key(rank));
      if (label && *label != request_.name) {
        other_labels += formatted("; rank {} makes a group '{}' of the same ranks", rank, *label);
      }
    }
    const double seconds = static_cast<double>(request_.timeout.count()) / 1000.0;
    // The others found a difference before this member came, and did not come again.
    if (of_another_opinion) {
      return {CommErrorKind::handshake_mismatch, of_another_opinion->gone_peers, of_another_opinion->gone};
    }
    const std::size_t here = request_.ranks.size() - never.size() - gone.size();
    // One that gave up waiting, at the same deadline perhaps, is to blame only when all the others came, and when that
    // is why they were not asked.
    if (never.empty() && (silent.empty() || !all_were_there)) never = std::move(gone);
    if (!other_labels.empty()) {
      return {CommErrorKind::handshake_mismatch, never,
              formatted("rank {} makes the group '{}'{}", own_.rank, request_.name, other_labels)};
    }
    if (!never.empty()) {
      return {CommErrorKind::peer_missing, never,
              formatted("within {:.1f} s {} did not come: {} of {} members are here{}", seconds, ranks_words(never),
                        here, request_.ranks.size(), notes)};
    }
    // Without the leader's word nobody answers; it is the one that is silent.
    if (!all_were_there && request_.rank_in_group != 0) silent = {request_.ranks.front()};
    return {CommErrorKind::peer_lost, silent,
            formatted("within {:.1f} s {} came, but did not answer{}", seconds, ranks_words(silent), notes)};
  }

  static std::string ranks_words(const std::vector<int>& ranks) {
    return formatted("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
  }

  // Tells all that are known, and leaves a record that says so: a late one shall not take this for a living member.
  void give_up(const Verdict& verdict) {
    for (const auto& [rank, nonce] : known_) {
      const bool is_leader = rank == request_.ranks.front();
      if (request_.rank_in_group == 0 || is_leader) mail(nonce, {{}, verdict.kind, verdict.peers, verdict.cause});
    }
    own_.gone = verdict.cause.empty() ? "for no known reason" : verdict.cause;
    own_.gone_kind = verdict.kind;
    own_.gone_peers = verdict.peers;
    const auto current = record_of(own_.rank);
    if (current && current->nonce == own_.nonce) store_->put(record_key(own_.rank), own_.to_json());
    take_back_opinion();
    store_->deleteKey(mail_key(own_.nonce));
    store_->deleteKey(answer_key(own_.nonce));
  }

  // Another thread of this rank may make another group of this name by now.
  void take_back_opinion() {
    const auto opinion = read(opinion_key(own_.rank));
    if (opinion && opinion->nonce == own_.nonce) store_->deleteKey(opinion_key(own_.rank));
  }

  void take_back() {
    take_back_opinion();  // first: has_word() reads what goes next
    store_->deleteKey(record_key(own_.rank));
    store_->deleteKey(mail_key(own_.nonce));
    labels_->deleteKey(label_key(own_.rank));
    // By the leader's word it is known that the answer was read.
    store_->deleteKey(answer_key(own_.nonce));
  }

  const HandshakeRequest& request_;
  const Clock::time_point began_;
  const Clock::time_point deadline_;
  c10::intrusive_ptr<TrackedStore> store_;
  c10::intrusive_ptr<TrackedStore> labels_;
  c10::intrusive_ptr<TrackedStore> generations_;
  HandshakeRecord own_;
  std::set<std::string> gone_before_;  // nonces of those that had given up before this member came
  std::map<int, std::string> known_;   // rank -> nonce of those whose record was seen
};

}  // namespace

HandshakeResult shake_hands(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                            const HandshakeRequest& request) {
  return Handshake(store, prefix, request).run();
}

}  // namespace dbg::distributed
