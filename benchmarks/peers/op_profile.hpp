// Where a libtorch step spends its time: self time (without nested operators) of every ATen operator and autograd
// node, gathered by a RecordFunction observer.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace peer {

class op_profile {
public:
    op_profile() {
        totals().clear();
        handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&on_enter, &on_exit)
                                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    }
    ~op_profile() { at::removeCallback(handle_); }
    op_profile(const op_profile&) = delete;
    op_profile& operator=(const op_profile&) = delete;

    static void print(int steps) {
        std::vector<std::pair<std::string, entry>> rows(totals().begin(), totals().end());
        std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.seconds > b.second.seconds; });
        double sum = 0;
        for (const auto& row : rows) {
            sum += row.second.seconds;
        }
        std::printf("%-48s %10s %10s %8s\n", "operator (self time)", "ms/step", "calls/step", "share");
        for (const auto& [name, e] : rows) {
            if (e.seconds < 0.001 * sum) {
                continue;
            }
            std::printf("%-48s %10.3f %10.1f %7.1f%%\n", name.c_str(), 1e3 * e.seconds / steps, double(e.calls) / steps,
                        100 * e.seconds / sum);
        }
        std::printf("%-48s %10.3f\n", "total", 1e3 * sum / steps);
    }

private:
    struct entry {
        double seconds = 0;
        long calls = 0;
    };
    using clock = std::chrono::steady_clock;
    struct frame : at::ObserverContext {
        clock::time_point begin = clock::now();
        double nested = 0;  // seconds spent in operators called from this one
        frame* parent = nullptr;
    };

    static std::map<std::string, entry>& totals() {
        static std::map<std::string, entry> t;
        return t;
    }
    // CPU backward runs in the thread that called it, so one stack is enough.
    static frame*& top() {
        static thread_local frame* f = nullptr;
        return f;
    }
    static std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction&) {
        auto f = std::make_unique<frame>();
        f->parent = top();
        top() = f.get();
        return f;
    }
    static void on_exit(const at::RecordFunction& fn, at::ObserverContext* context) {
        auto* f = static_cast<frame*>(context);
        const double inclusive = std::chrono::duration<double>(clock::now() - f->begin).count();
        auto& e = totals()[fn.name()];
        e.seconds += inclusive - f->nested;
        ++e.calls;
        if (f->parent != nullptr) {
            f->parent->nested += inclusive;
        }
        top() = f->parent;
    }

    at::CallbackHandle handle_;
};

}  // namespace peer
