// main of every judge, compiled once a lab. The grader starts it for one test:
//   CAIRN_LAB_JUDGE="CONTROL VERDICT IN OUT IN OUT …"   descriptors: into CONTROL goes the number of each rank whose
//                                                      worker is to be started, into VERDICT what came of the test; the
//                                                      others are the pipes from and to the workers
//   CAIRN_LAB_SEED, CAIRN_LAB_RECORD (a folder: what is written to worker R is also written into its file R)

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using listener_base = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>
using listener_base = Catch::TestEventListenerBase;
#endif

#include "router.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace lab {
namespace {

std::uint64_t given_seed = 1;
std::string tried, dead;  // lab::doing's text; which workers ended, "0 3"
int control_pipe = -1, verdict_pipe = -1;

/// The two pipes of one worker, neither of which is ever waited for alone.
class worker {
public:
    worker(int rank, int in, int out) : in_(in), out_(out), rank_(rank) {
        for (const int pipe : {in, out}) fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
    }
    void start() {
        if (started_) return;
        const auto number = static_cast<unsigned char>(rank_);
        if (::write(control_pipe, &number, 1) != 1) std::exit(2);
        started_ = true;
        if (const char* folder = std::getenv("CAIRN_LAB_RECORD"))
            record_ = std::fopen((std::string(folder) + "/" + std::to_string(rank_)).c_str(), "wb");
    }
    void say(to_worker kind, std::uint32_t number, std::span<const std::byte> payload) {
        const frame_header header{static_cast<std::uint32_t>(kind), number, payload.size()};
        append(std::as_bytes(std::span(&header, 1)));
        append(payload);
    }
    pollfd reading() const { return {in_, POLLIN, 0}; }
    pollfd writing() const { return {unsent_.empty() ? -1 : out_, POLLOUT, 0}; }
    bool unsent() const { return !unsent_.empty(); }

    void flush() {
        const ssize_t n = ::write(out_, unsent_.data(), unsent_.size());
        if (n > 0)
            unsent_.erase(unsent_.begin(), unsent_.begin() + n);
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            unsent_.clear();  // it has ended, which reading tells
    }
    /// false: the worker has ended.
    bool fill() {
        static bytes room(1 << 18);
        const ssize_t n = ::read(in_, room.data(), room.size());
        got_.erase(got_.begin(), got_.begin() + static_cast<std::ptrdiff_t>(std::exchange(used_, 0)));
        if (n > 0) got_.insert(got_.end(), room.begin(), room.begin() + n);
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    }
    /// The next frame that is complete, or nothing; it lives until the next `fill`.
    const frame_header* next(std::span<const std::byte>& payload) {
        const auto rest = std::span(got_).subspan(used_);
        if (rest.size() < sizeof header_) return nullptr;
        std::memcpy(&header_, rest.data(), sizeof header_);
        if (header_.bytes > most_frame_bytes) throw fault("its worker wrote what is no frame");
        if (rest.size() - sizeof header_ < header_.bytes) return nullptr;
        payload = rest.subspan(sizeof header_, header_.bytes);
        used_ += sizeof header_ + header_.bytes;
        return &header_;
    }

private:
    void append(std::span<const std::byte> part) {
        unsent_.insert(unsent_.end(), part.begin(), part.end());
        if (record_ && std::fwrite(part.data(), 1, part.size(), record_)) std::fflush(record_);
    }

    int in_, out_, rank_;
    bool started_ = false;
    bytes unsent_, got_;
    std::size_t used_ = 0;
    frame_header header_;
    std::FILE* record_ = nullptr;
};

std::vector<worker> workers;
std::map<std::string, detail::answer> answers;
bool broken = false;  // workers are in the middle of something that will never end
std::uint32_t calls = 0;

/// One call on some ranks, from its frames to its replies.
class exchange_call {
public:
    exchange_call(const std::string& name, const std::vector<bytes>& arguments, const alpha_beta& net)
        : name_(name), ranks_(static_cast<int>(arguments.size())), router_(ranks_, net) {
        if (broken) throw fault("not run: an earlier call of this test left ranks in the middle of their work");
        if (arguments.size() > workers.size())
            throw std::logic_error("the test needs " + text(ranks_, "rank") + ", lab.toml has " +
                                   std::to_string(workers.size()));
        router_.write = [](int rank, to_worker kind, std::uint32_t number, std::span<const std::byte> payload) {
            workers[static_cast<std::size_t>(rank)].say(kind, number, payload);
        };
        ++calls;
        result_.results.resize(arguments.size());
        replied_.resize(arguments.size());
        for (int r = 0; r < ranks_; ++r) {
            worker& w = of(r);
            w.start();
            const bytes& own = arguments[static_cast<std::size_t>(r)];
            bytes payload = writer().put(name).put(r).put(ranks_).data;
            payload.insert(payload.end(), own.begin(), own.end());
            w.say(to_worker::call, calls, payload);
        }
    }

    detail::replies run() {
        broken = true;  // unless it comes to its end
        while (active_() > 0) {
            if (stuck()) throw fault(why_not("Deadlock: every rank waits.\n" + router_.states()));
            std::vector<pollfd> pipes;
            for (int r = 0; r < ranks_; ++r) pipes.push_back(of(r).reading()), pipes.push_back(of(r).writing());
            if (poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) throw std::runtime_error("poll failed");
            for (int r = 0; r < ranks_; ++r) {
                const auto at = 2 * static_cast<std::size_t>(r);
                if (pipes[at + 1].revents) of(r).flush();
                if (pipes[at].revents) hear(r);
            }
        }
        broken = false;
        result_.sent = router_.counts();
        return std::move(result_);
    }

private:
    static worker& of(int r) { return workers[static_cast<std::size_t>(r)]; }
    long active_() const { return std::count(replied_.begin(), replied_.end(), false); }
    bool stuck() const {
        for (int r = 0; r < ranks_; ++r)
            if (!replied_[static_cast<std::size_t>(r)] && (!router_.waits(r) || of(r).unsent())) return false;
        return true;
    }
    std::string where(int r) const {
        return ranks_ == 1 ? name_ : name_ + ", rank " + std::to_string(r) + " of " + std::to_string(ranks_);
    }
    /// An exception on one rank is why the others wait: that is what is said.
    std::string why_not(const std::string& why) const { return error_.empty() ? where_all() + why : error_; }
    std::string where_all() const { return name_ + " on " + text(ranks_, "rank") + ". "; }

    void hear(int r) {
        if (!of(r).fill()) {
            dead += (dead.empty() ? "" : " ") + std::to_string(r);
            throw fault(why_not(where(r) + ": the worker ended before it replied"));
        }
        std::span<const std::byte> payload;
        try {
            while (const frame_header* header = of(r).next(payload)) take(r, *header, payload);
        } catch (const wire_error& error) {
            throw fault(where(r) + ": its worker wrote a frame that cannot be read: " + error.what());
        } catch (const threw&) {
            throw;
        } catch (const fault& error) {
            throw fault(where(r) + ": " + error.what());
        }
    }
    void take(int r, const frame_header& header, std::span<const std::byte> payload) {
        const auto rank = static_cast<std::size_t>(r);
        if (replied_[rank]) throw fault("its worker spoke after its reply");
        if (header.kind == static_cast<std::uint32_t>(to_judge::ask)) {
            reader in(payload);
            const auto found = answers.find(in.get<std::string>());
            if (found == answers.end()) throw fault("its worker asked what this test does not answer");
            return of(r).say(to_worker::answer, 0, found->second(in));
        }
        if (header.kind != static_cast<std::uint32_t>(to_judge::reply)) return router_.take(r, header, payload);
        if (header.number != calls) throw fault("its worker replied to another call");
        reader in(payload);
        if (in.get<int>() != 0 && error_.empty()) {
            in.get<std::string>();
            error_ = (ranks_ == 1 ? "" : "rank " + std::to_string(r) + " of " + std::to_string(ranks_) + ": ") +
                     in.get<std::string>();
        }
        result_.results[rank].assign(payload.begin(), payload.end());
        replied_[rank] = true;
        router_.returned(r);
    }

    std::string name_;
    int ranks_;
    router router_;
    detail::replies result_;
    std::vector<bool> replied_;
    std::string error_;  // of the first exception
};

/// As JSON writes it; whatever is no UTF-8 is left to who reads it.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += std::string("\\") + c;
        else if (c == '\n')
            out += "\\n";
        else
            out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
}

void learn_pipes() {
    if (const char* text = std::getenv("CAIRN_LAB_SEED")) given_seed = std::strtoull(text, nullptr, 10);
    const char* all = std::getenv("CAIRN_LAB_JUDGE");
    if (!all) return;
    std::istringstream numbers(all);
    numbers >> control_pipe >> verdict_pipe;
    for (int in = 0, out = 0; numbers >> in >> out;) workers.emplace_back(static_cast<int>(workers.size()), in, out);
}

/// Of a check `text == ""`, as Catch writes it with its values: the text, which says what is wrong.
std::string fault_in(const std::string& expanded) {
    const std::size_t equal = expanded.rfind("==");
    if (equal == std::string::npos || expanded[0] != '"' || expanded.find("\"\"", equal) == std::string::npos)
        return "";
    return expanded.substr(1, expanded.rfind('"', equal) - 1);
}

/// Counts checks and keeps the first failure: what is wrong in its first line, then where.
class verdict_listener : public listener_base {
public:
    using listener_base::listener_base;

    void tell(const Catch::AssertionStats& stats) {
        ++checks;
        const auto& result = stats.assertionResult;
        if (result.isOk() || failures++ > 0) return;
        const std::string file = result.getSourceInfo().file;
        std::ostringstream where, text;
        where << file.substr(file.find_last_of('/') + 1) << ':' << result.getSourceInfo().line;
        const std::string expression = result.hasExpression() ? std::string(result.getExpressionInMacro()) : "";
        if (!expression.empty() && expression[0] != '{') where << ": " << expression;  // {Unknown expression …}
        const std::string fault = result.hasExpandedExpression() ? fault_in(result.getExpandedExpression()) : "";
        if (!fault.empty())
            text << fault << '\n' << where.str();
        else if (result.hasMessage())
            text << std::string(result.getMessage()) << '\n' << where.str();
        else
            text << where.str();
        if (fault.empty() && result.hasExpandedExpression())
            text << "\nwith values: " << result.getExpandedExpression();
        for (const auto& info : stats.infoMessages)
            if (!result.hasMessage() || info.message != std::string(result.getMessage())) text << "\n" << info.message;
        message = text.str().substr(0, 8000);
    }
    void tell(const Catch::TestRunStats& stats) const {
        const auto& cases = stats.totals.testCases;
        const bool passed = cases.passed == 1 && cases.total() == 1 && failures == 0 && checks > 0;
        std::ostringstream out;
        out << "{\"passed\": " << (passed ? "true" : "false") << ", \"checks\": " << checks << ", \"message\": \""
            << escaped(message) << "\", \"dead\": \"" << dead << "\", \"doing\": \"" << escaped(tried) << "\"}\n";
        const std::string line = out.str();
        for (std::size_t at = 0; verdict_pipe >= 0 && at < line.size();) {
            const ssize_t n = write(verdict_pipe, line.data() + at, line.size() - at);
            if (n <= 0) break;
            at += static_cast<std::size_t>(n);
        }
    }

#if __has_include(<catch2/catch_all.hpp>)
    void assertionEnded(const Catch::AssertionStats& stats) override { tell(stats); }
#else
    bool assertionEnded(const Catch::AssertionStats& stats) override {
        tell(stats);
        return true;
    }
#endif
    void testRunEnded(const Catch::TestRunStats& stats) override { tell(stats); }

private:
    int checks = 0, failures = 0;
    std::string message;
};

}  // namespace

std::uint64_t seed() { return given_seed; }
void doing(const std::string& what) { tried = what; }
detail::replies detail::exchange(const std::string& name, const std::vector<bytes>& arguments, const alpha_beta& net) {
    return exchange_call(name, arguments, net).run();
}
void detail::set_answer(const std::string& name, answer f) { answers[name] = std::move(f); }

}  // namespace lab

using lab::verdict_listener;
CATCH_REGISTER_LISTENER(verdict_listener)

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    lab::learn_pipes();
    return Catch::Session().run(argc, argv);
}
