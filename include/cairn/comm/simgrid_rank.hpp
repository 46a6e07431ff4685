#pragma once
// A simulated rank: its clock, its processor and its helpers, as SimGrid actors. Kernels only add up their seconds;
// they are spent, as one activity, before the rank sends, waits or hands a job on.

#if CAIRN_HAS_SIMGRID  // defined by the CMake target cairn::simgrid; without SimGrid this header is empty

#include <cairn/comm/rank_state.hpp>
#include <cairn/comm/simgrid_engine.hpp>
#include <cairn/comm/traffic.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/core/rank_locals.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What a rank did in a simulation, its helpers included.
struct simulated_rank {
    double end = 0;                        // seconds when it was through
    double computed = 0;                   // seconds of kernels and of handling messages, on cores of its own
    double waited = 0;                     // seconds in waits for messages
    std::int64_t messages = 0, bytes = 0;  // sent
    traffic sent;                          // the same by cause
    index_t peak = 0;                      // bytes of memory
    joules_by_cause joules;                // of its share of its processor, where the machine has watts
};

namespace detail {

/// What an actor waits for.
struct simulated_wait {
    const rank_state* who;  // in which communicator, and collective
    bool sends;
    std::size_t bytes;
    int peer, tag;
};

class simulated_machine;

/// What all actors of a simulation share. Actors take turns, so it needs no lock; but every call of SimGrid may let
/// others run.
struct simulation_state {
    simulation_state(const machine_description& m, int count, const std::string& contexts)
        : machine(m),
          platform(m, count, contexts),
          ranks(static_cast<std::size_t>(count)),
          power_states(static_cast<std::size_t>(count), m.power ? m.power->state : 0) {}

    const machine_description& machine;
    simulated_platform platform;
    std::vector<simulated_rank> ranks;
    std::vector<std::size_t> power_states;   // of the ranks
    std::map<int, double> taken_on_disk;     // bytes, by host
    std::vector<s4u::ActorPtr> actors;       // of the ranks
    std::list<simulated_machine*> machines;  // of ranks and helpers
    std::vector<s4u::CommPtr> left;          // messages that a dropped request left under way
    std::exception_ptr failure;
    int next_context = 1;

    /// Ends the simulation from inside an actor, and does not return: actors are left where they stand, none is
    /// unwound.
    [[noreturn]] void stop(std::exception_ptr why) {
        if (!failure) failure = std::move(why);
        simgrid::kernel::timer::Timer::set(s4u::Engine::get_clock(), [] { throw stopped{}; });
        for (;;) let_others_run([] { s4u::this_actor::suspend(); });
    }
    struct stopped {};

    /// A processor idles when the last of its ranks is through.
    void end_of(int rank) {
        if (!machine.power) return;
        const int n = platform.ranks_per_processor(), first = rank / n * n;
        for (int r = first; r < first + n && r < static_cast<int>(ranks.size()); ++r)
            if (ranks[static_cast<std::size_t>(r)].end == 0 && r != rank) return;
        let_others_run([&] { platform.set_power_state(rank, platform.idle()); });
    }

    /// Joules of the ranks by cause: those of computing are there. The ranks of a processor share the rest evenly.
    void share_joules(double seconds) {
        if (!machine.power) return;
        const auto n = static_cast<std::size_t>(platform.ranks_per_processor());
        for (std::size_t first = 0; first < ranks.size(); first += n) {
            const std::span<simulated_rank> all(&ranks[first], std::min(n, ranks.size() - first));
            double busy = 0, end = 0;  // seconds; busy: of all cores
            for (const simulated_rank& r : all) {
                busy += r.computed / machine.places();
                end = std::max(end, r.end);
            }
            for (simulated_rank& r : all) {
                r.joules.waiting = machine.power->waiting * (end - busy) / static_cast<double>(all.size());
                r.joules.idle = machine.power->idle * (seconds - end) / static_cast<double>(all.size());
            }
        }
    }
};

/// Clock and speed of one actor.
class simulated_machine final : public phantom_machine {
public:
    simulated_machine(simulation_state& s, int rank) : state(s), rank_(rank) {
        at_ = s.machines.insert(s.machines.end(), this);
    }
    ~simulated_machine() override { state.machines.erase(at_); }

    /// Of the calling actor.
    static simulated_machine& here() { return static_cast<simulated_machine&>(*phantom_here); }

    int rank() const { return rank_; }
    double now() override { return s4u::Engine::get_clock() + charged_; }
    void charge(const kernel_work& work) override { spend_later(kernel_seconds(work)); }
    double kernel_seconds(const kernel_work& work) override {
        return power_state() == 0 ? state.machine.seconds(work)
                                  : state.machine.seconds(work, power().states[power_state()].frequency);
    }
    void pass(double seconds) override {
        spend();
        if (seconds > 0) wait([&] { s4u::this_actor::sleep_for(seconds); });
    }
    void read_storage(storage from, double bytes) override { transfer(from, bytes, false); }
    void write_storage(storage to, double bytes) override { transfer(to, bytes, true); }
    bool has_storage(storage where) override {
        return where == storage::shared ? state.machine.file_system.has_value() : state.machine.disk.has_value();
    }
    void reserve_storage(storage where, double bytes) override {
        if (where == storage::shared || !state.machine.disk || state.machine.disk->capacity == 0) return;
        const int host = state.machine.host_of(rank_);
        double& taken = state.taken_on_disk[host];
        taken += bytes;
        require(taken <= static_cast<double>(state.machine.disk->capacity), "machine ", state.machine.name, ": ", taken,
                " bytes on the disk of host ", host, ", which has room for ", state.machine.disk->capacity,
                "; take shared reads, or keep a smaller part");
    }
    double message_seconds(double bytes) override { return state.machine.between.exchange(bytes); }
    std::unique_ptr<job_queue> start_queue() override;

    /// The processor works, from the next spend() on.
    void spend_later(double seconds) {
        charged_ += seconds;
        count(seconds);
    }
    void spend() {
        if (charged_ <= 0) return;
        const double work = std::exchange(charged_, 0.0) * simulated_platform::second;
        const double begin = s4u::Engine::get_clock();
        let_others_run([&] { s4u::this_actor::exec_init(work)->set_host(state.platform.processor(rank_))->wait(); });
        spent_.computing += s4u::Engine::get_clock() - begin;
    }

    phantom_seconds spent() override {
        phantom_seconds all = spent_;
        all.computing += charged_;
        return all;
    }
    /// f(), in which this actor waits: for another stage of a pipeline, or for anything else.
    template <class F>
    void wait(F&& f, bool for_stage = false) {
        const double begin = s4u::Engine::get_clock();
        let_others_run(f);
        (for_stage ? spent_.stages : spent_.waiting) += s4u::Engine::get_clock() - begin;
    }

    double joules() override {
        spend();
        double all = 0;
        let_others_run([&] { all = state.platform.host_joules() + state.platform.link_joules(); });
        return all;
    }
    void set_power_state(std::size_t k) override {
        if (k == power_state()) return;
        require(state.machine.power.has_value() && k < power().states.size(), "machine ", state.machine.name,
                ": no p-state ", k, " among hosts.watts.busy");
        require(state.platform.ranks_per_processor() == 1, "machine ", state.machine.name, ": rank ", rank_,
                " cannot choose its frequency: it shares its processor with other ranks");
        spend();
        state.power_states[static_cast<std::size_t>(rank_)] = k;
        let_others_run([&] { state.platform.set_power_state(rank_, k); });
    }

    /// Waits for a message. From now on the processor copies its bytes, and is polled until they are there.
    void wait_for(const s4u::CommPtr& message, std::size_t bytes, bool for_stage) {
        const machine_description& m = state.machine;
        const double copying = m.copy * static_cast<double>(bytes);
        count(copying);
        const auto until_it_is_there = [&] {
            const auto start = [&](double seconds, double share) {
                if (share <= 0 || seconds <= 0) return s4u::ExecPtr{};
                s4u::ExecPtr work = s4u::this_actor::exec_init(seconds * simulated_platform::second);
                work->set_bound(share * simulated_platform::second)->set_host(state.platform.processor(rank_))->start();
                return work;
            };
            const s4u::ExecPtr copy = start(copying, 1), polling = start(1e6, m.polling);
            message->wait();
            if (copy) copy->wait();
            if (polling) polling->cancel();
        };
        wait(until_it_is_there, for_stage);
    }

    simulated_rank& numbers() { return state.ranks[static_cast<std::size_t>(rank_)]; }

    simulation_state& state;
    const simulated_wait* waits = nullptr;  // null: for no message

private:
    void transfer(storage where, double bytes, bool writes) {
        spend();
        wait([&] { state.platform.transfer(rank_, where, bytes, writes); });
    }
    void count(double seconds) {
        numbers().computed += seconds;
        if (state.machine.power)
            numbers().joules.computing += power().states[power_state()].busy * seconds / state.machine.places();
    }
    const host_power& power() const { return *state.machine.power; }
    std::size_t power_state() const { return state.power_states[static_cast<std::size_t>(rank_)]; }

    int rank_;
    double charged_ = 0;
    phantom_seconds spent_;
    std::list<simulated_machine*>::iterator at_;
};

/// A helper of a rank: an actor beside it on its processor.
class simulated_queue final : public job_queue {
    struct shared {
        std::deque<std::function<void()>> jobs;
        std::exception_ptr failure;
        bool busy = false, stops = false;
        std::size_t jobs_done = 0, owner_waits_for = 0;  // 0: it does not wait
        s4u::SemaphorePtr submitted, done;
    };

public:
    explicit simulated_queue(simulated_machine& owner) : shared_(std::make_shared<shared>()) {
        owner.spend();
        let_others_run([&] {
            shared_->submitted = s4u::Semaphore::create(0);
            shared_->done = s4u::Semaphore::create(0);
            actor_ =
                s4u::Actor::create(concat("helper of rank ", owner.rank()), s4u::this_actor::get_host(),
                                   [s = shared_, &state = owner.state, rank = owner.rank(), &pool = *pool_of_owner_,
                                    &events = *trace_of_owner_] { work(*s, state, rank, pool, events); });
        });
    }
    /// Drops the jobs that have not begun, waits for the running one; while an error ends the rank, leaves that behind.
    ~simulated_queue() override {
        shared_->jobs.clear();
        shared_->stops = true;
        const bool fails = std::uncaught_exceptions() > 0;
        let_others_run([&] {
            if (fails) return actor_->suspend();
            shared_->submitted->release();
            actor_->join();
        });
    }

    void submit(std::function<void()> job) override {
        simulated_machine::here().spend();
        if (shared_->failure) return;
        shared_->jobs.push_back(std::move(job));
        let_others_run([&] { shared_->submitted->release(); });
    }
    void wait() override { wait_for_first(std::numeric_limits<std::size_t>::max()); }
    void wait_for_first(std::size_t jobs) override {
        simulated_machine::here().spend();
        while (shared_->jobs_done < jobs && (shared_->busy || !shared_->jobs.empty())) {
            shared_->owner_waits_for = jobs;
            simulated_machine::here().wait([&] { shared_->done->acquire(); });
        }
        if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
    }

private:
    static void work(shared& s, simulation_state& state, int rank, memory_pool& pool, trace& events) {
        rank_locals of_another;  // which puts its own back
        trace::of_rank() = &events;
        simulated_machine machine(state, rank);
        phantom_here = &machine;
        const memory_pool::scope here(pool);
        while (!s.stops) {
            let_others_run([&] { s.submitted->acquire(); });
            if (s.jobs.empty()) continue;
            const std::function<void()> job = std::move(s.jobs.front());
            s.jobs.pop_front();
            s.busy = true;
            try {
                job();
                machine.spend();
            } catch (...) {
                s.jobs.clear();
                s.failure = std::current_exception();
            }
            s.busy = false;
            ++s.jobs_done;
            if (s.owner_waits_for > 0 && (s.jobs.empty() || s.jobs_done >= s.owner_waits_for)) {
                s.owner_waits_for = 0;
                let_others_run([&] { s.done->release(); });
            }
        }
        phantom_here = nullptr;
        trace::of_rank() = nullptr;
    }

    memory_pool* pool_of_owner_ = &memory_pool::host();
    trace* trace_of_owner_ = &trace::global();
    std::shared_ptr<shared> shared_;
    s4u::ActorPtr actor_;
};

inline std::unique_ptr<job_queue> simulated_machine::start_queue() { return std::make_unique<simulated_queue>(*this); }

}  // namespace detail

}  // namespace cairn

#endif
