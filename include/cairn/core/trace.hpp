#pragma once
// Trace of a run for Perfetto or chrome://tracing: complete events ("X") of the trace-event format. Off by default: a
// scope then costs one load. Scopes nest: the name of an event is the path of the scopes around it, "layer2/0/conv1".

#include <cairn/core/clock.hpp>
#include <cairn/core/cost.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

/// One finished interval.
struct trace_event {
    std::string path;
    const char* phase;  // "forward", "backward", … or ""
    const char* kind;   // "compute", "data", "optimizer", …
    double begin, end;  // seconds of now()
    std::size_t thread;
    layer_cost cost;         // of the layer, where one was given
    std::string layer = {};  // its describe(), likewise
};

/// All events of this process, or of one simulated rank.
class trace {
public:
    static trace& global() {
        static trace t;
        return of_rank() ? *of_rank() : t;
    }
    /// Of the simulated rank that runs on this thread; null: the process's.
    static trace*& of_rank() {
        thread_local trace* here = nullptr;
        return here;
    }

    void enable(bool on) { on_.store(on, std::memory_order_relaxed); }
    bool enabled() const { return on_.load(std::memory_order_relaxed); }

    /// Intervals are measured by `clock` from now on, for example one that marks moments of a GPU; null: now().
    void use_clock(std::function<double()> clock) { clock_ = std::move(clock); }
    double time() const { return clock_ ? clock_() : now(); }

    void add(trace_event event) {
        const std::scoped_lock lock(mutex_);
        if (events_.size() < max_events) events_.push_back(std::move(event));
    }

    std::vector<trace_event> events() const {
        const std::scoped_lock lock(mutex_);
        return events_;
    }
    void clear() {
        const std::scoped_lock lock(mutex_);
        events_.clear();
    }

    /// Writes the events as a JSON object that Perfetto opens.
    void write(std::ostream& out) const {
        out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [" << events_json(0) << "\n]}\n";
    }

    /// The events alone, with commas between them, as those of process `process`: a rank's part of a joint trace, to
    /// whose clock `later` seconds are added.
    std::string events_json(int process, double later = 0) const {
        const std::scoped_lock lock(mutex_);
        std::ostringstream out;
        std::vector<std::size_t> threads;  // numbered in order of appearance
        const char* separator = "\n";
        for (const trace_event& e : events_) {
            auto at = std::find(threads.begin(), threads.end(), e.thread);
            if (at == threads.end()) at = threads.insert(at, e.thread);
            out << separator << "{\"ph\": \"X\", \"pid\": " << process << ", \"tid\": " << at - threads.begin()
                << ", \"name\": \"" << escaped(e.path) << (*e.phase ? " " : "") << e.phase << "\", \"cat\": \""
                << e.kind << "\", \"ts\": " << std::fixed << (e.begin + later) * 1e6
                << ", \"dur\": " << (e.end - e.begin) * 1e6 << std::defaultfloat << '}';
            separator = ",\n";
        }
        return out.str();
    }

private:
    // A path as the inside of a JSON string: layers may be named by a user.
    static std::string escaped(const std::string& text) {
        std::string safe;
        for (const char c : text) {
            constexpr const char* digits = "0123456789abcdef";
            const auto code = static_cast<unsigned char>(c);
            if (code < 0x20)
                safe += {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
            else
                safe += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
        }
        return safe;
    }

    static constexpr std::size_t max_events = 400'000;
    std::atomic<bool> on_{false};
    std::function<double()> clock_;
    mutable std::mutex mutex_;
    std::vector<trace_event> events_;
};

/// Records the interval from its construction to its destruction.
class trace_scope {
public:
    trace_scope(std::string_view name, const char* phase, const char* kind) : phase_(phase), kind_(kind) {
        if (!trace::global().enabled()) return;
        outer_length_ = path().size();
        if (outer_length_ && !name.empty()) path() += '/';
        path() += name;
        begin_ = trace::global().time();
    }
    ~trace_scope() {
        if (!active()) return;
        trace::global().add(
            {path(), phase_, kind_, begin_, trace::global().time(), this_thread(), cost_, std::move(layer_)});
        path().resize(outer_length_);
    }
    bool active() const { return begin_ >= 0; }
    void set_cost(const layer_cost& cost) { cost_ = cost; }
    void set_layer(std::string description) { layer_ = std::move(description); }

    /// The path of the scopes open on this thread gives way to `next`: where ranks take turns on one thread.
    static std::string exchange_path(std::string next) { return std::exchange(path(), std::move(next)); }

    trace_scope(const trace_scope&) = delete;
    trace_scope& operator=(const trace_scope&) = delete;

private:
    // Simulated ranks and their helpers take turns on one thread.
    static std::size_t this_thread() {
        if (trace::of_rank()) return reinterpret_cast<std::size_t>(phantom_here);
        return std::hash<std::thread::id>{}(std::this_thread::get_id());
    }
    // The scopes open on this thread, joined.
    static std::string& path() {
        thread_local std::string joined;
        return joined;
    }

    const char* phase_;
    const char* kind_;
    layer_cost cost_;
    std::string layer_;
    std::size_t outer_length_ = 0;
    double begin_ = -1;
};

}  // namespace cairn
