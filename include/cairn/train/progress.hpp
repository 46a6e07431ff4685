#pragma once
// The progress line of training: a bar, loss, metric, samples/s and time to go. On a terminal the line is
// redrawn ten times a second at most; in a log file a line is printed every `log_seconds`.

#include <cairn/core/clock.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace cairn {

/// "3:07" or "1:02:09".
inline std::string clock_text(double seconds) {
    const auto s = static_cast<long>(std::max(0.0, seconds) + 0.5);
    char text[32];
    if (s >= 3600)
        std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        std::snprintf(text, sizeof text, "%ld:%02ld", s / 60, s % 60);
    return text;
}

class progress_line {
public:
    /// With `on` false, nothing is ever printed: all ranks but one.
    explicit progress_line(bool on = true, double log_seconds = 15)
        : on_(on), log_seconds_(log_seconds), terminal_(isatty(STDERR_FILENO)) {}

    /// Shows `text` behind a bar that is full at done = total.
    void show(index_t done, index_t total, const std::string& text) {
        const double since = now() - shown_;
        if (!on_ || since < (terminal_ ? 0.1 : log_seconds_)) return;
        shown_ = now();
        if (!terminal_) {
            std::fprintf(stderr, "%5.1f %%  %s\n",
                         100.0 * static_cast<double>(done) / static_cast<double>(std::max<index_t>(total, 1)),
                         text.c_str());
            return;
        }
        constexpr int width = 28;
        const auto filled = static_cast<int>(width * std::min(done, total) / std::max<index_t>(total, 1));
        std::string bar;
        for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
        std::fprintf(stderr, "\r\033[2K%s %3d %%  %s", bar.c_str(),
                     static_cast<int>(100 * std::min(done, total) / std::max<index_t>(total, 1)), text.c_str());
        std::fflush(stderr);
    }

    /// Prints a line that stays, above the bar.
    void print(const std::string& line) {
        if (!on_) return;
        std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[2K" : "", line.c_str());
        shown_ = -1e9;
    }

private:
    bool on_;
    double log_seconds_;
    bool terminal_;
    double shown_ = -1e9;
};

}  // namespace cairn
