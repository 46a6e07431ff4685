// main of every worker, compiled before submissions are.
//   worker IN OUT         descriptors of the two pipes to the judge
//   worker --replay FILE  what a judge wrote to this worker (labs/grader/grade --debug): for a debugger

#include "frames.hpp"
#include "worker.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>

namespace lab {
namespace {

int in_pipe = -1, out_pipe = -1;  // out_pipe −1: replayed, nobody listens
bytes unsent;
std::uint32_t requests = 0;

std::map<std::string, detail::handler>& handlers() {
    static std::map<std::string, detail::handler> all;
    return all;
}

void append(const void* from, std::size_t n) {
    const auto* first = static_cast<const std::byte*>(from);
    unsent.insert(unsent.end(), first, first + n);
}

void flush() {
    std::size_t at = 0;
    while (out_pipe >= 0 && at < unsent.size()) {
        const ssize_t n = ::write(out_pipe, unsent.data() + at, unsent.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) std::_Exit(0);  // the judge has heard enough
        at += static_cast<std::size_t>(n);
    }
    unsent.clear();
}

void say(to_judge kind, std::uint32_t number, std::span<const std::byte> payload,
         std::span<const std::byte> more = {}) {
    const frame_header header{static_cast<std::uint32_t>(kind), number, payload.size() + more.size()};
    append(&header, sizeof header);
    append(payload.data(), payload.size());
    append(more.data(), more.size());
    if (unsent.size() > 1 << 16) flush();
}

void read_all(void* to, std::size_t n) {
    auto* at = static_cast<char*>(to);
    while (n > 0) {
        const ssize_t got = ::read(in_pipe, at, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) std::_Exit(0);  // the test is over
        at += got, n -= static_cast<std::size_t>(got);
    }
}

struct frame {
    to_worker kind;
    std::uint32_t number;
    bytes payload;
};

/// Sends what is unsent, and blocks for the judge's next word.
frame listen() {
    flush();
    frame_header header;
    read_all(&header, sizeof header);
    frame f{static_cast<to_worker>(header.kind), header.number, bytes(header.bytes)};
    read_all(f.payload.data(), f.payload.size());
    return f;
}

frame expect(to_worker kind) {
    frame f = listen();
    if (f.kind != kind)
        std::fprintf(stderr, "the judge said %u, not %u\n", unsigned(f.kind), unsigned(kind)), std::_Exit(2);
    return f;
}

/// The exception in flight: its type, as far as tests ask for it, and its text.
std::pair<std::string, std::string> caught() {
    try {
        throw;
    } catch (const std::invalid_argument& e) {
        return {"invalid_argument", e.what()};
    } catch (const std::out_of_range& e) {
        return {"out_of_range", e.what()};
    } catch (const std::domain_error& e) {
        return {"domain_error", e.what()};
    } catch (const std::length_error& e) {
        return {"length_error", e.what()};
    } catch (const std::logic_error& e) {
        return {"logic_error", e.what()};
    } catch (const std::bad_alloc&) {
        return {"bad_alloc", "there is no more memory: std::bad_alloc"};
    } catch (const std::exception& e) {
        return {"exception", e.what()};
    } catch (...) {
        return {"unknown", "something that is no std::exception"};
    }
}

void serve_call(const frame& f) {
    reader in(f.payload);
    const auto name = in.get<std::string>();
    const int rank = in.get<int>(), ranks = in.get<int>();
    std::vector<int> members;
    for (int r = 0; r < ranks; ++r) members.push_back(r);
    writer out;
    try {
        const auto found = handlers().find(name);
        if (found == handlers().end()) throw std::logic_error("the adapter serves no \"" + name + "\"");
        communicator c(0, std::move(members), rank);
        out.put(0);
        found->second(in, out, c);
    } catch (...) {
        const auto [type, text] = caught();
        out = {};
        out.put(1).put(type).put(text.substr(0, 20000));
    }
    std::fflush(stdout);
    say(to_judge::reply, f.number, out.data);
    flush();
}

}  // namespace

bool detail::serve(std::string name, handler f) { return handlers().emplace(std::move(name), std::move(f)).second; }

bytes detail::ask(bytes question) {
    say(to_judge::ask, 0, question);
    return expect(to_worker::answer).payload;
}

int communicator::member(int peer, int tag) const {
    if (peer < 0 || peer >= size())
        throw std::out_of_range("rank " + std::to_string(rank_) + " of " + std::to_string(size()) +
                                ": there is no rank " + std::to_string(peer));
    if (tag < 0 || tag > 32767) throw std::out_of_range("tag " + std::to_string(tag) + ": tags are 0 to 8191");
    return members_[static_cast<std::size_t>(peer)];
}

communicator::request communicator::isend(std::span<const std::byte> data, int peer, int tag) {
    writer head;
    head.put(context_).put(member(peer, tag)).put(tag);
    say(to_judge::send, ++requests, head.data, data);
    return {requests, {}};
}

communicator::request communicator::irecv(std::span<std::byte> room, int peer, int tag) {
    writer head;
    head.put(context_).put(member(peer, tag)).put(tag).put(room.size());
    say(to_judge::receive, ++requests, head.data);
    return {requests, room};
}

communicator communicator::split(int colour, int key) {
    say(to_judge::split, context_, writer().put(colour).put(key).data);
    const frame f = expect(to_worker::part);
    reader in(f.payload);
    const auto context = in.get<std::uint32_t>();
    auto members = in.get<std::vector<int>>();
    const int rank = in.get<int>();
    return {context, std::move(members), rank};
}

void communicator::request::wait() {
    if (number_ == 0) return;
    say(to_judge::wait, number_, {});
    const frame f = expect(to_worker::done);
    if (f.payload.size() == room_.size() && !room_.empty()) std::memcpy(room_.data(), f.payload.data(), room_.size());
    number_ = 0;
}

bool communicator::request::test() {
    if (number_ == 0) return true;
    say(to_judge::test, number_, {});
    if (expect(to_worker::ready).payload.at(0) == std::byte{0}) return false;
    wait();
    return true;
}

void communicator::request::cancel() noexcept {
    if (number_ != 0) say(to_judge::cancel, number_, {});
    number_ = 0;
}

communicator::scope::scope(const std::string& name) { say(to_judge::enter, 0, writer().put(name).data); }
communicator::scope::~scope() { say(to_judge::leave, 0, {}); }

}  // namespace lab

int main(int count, char** words) {
    if (count != 3) return std::fputs("worker: labs/grader/grade starts this program\n", stderr), 2;
    if (std::string(words[1]) == "--replay") {
        lab::in_pipe = ::open(words[2], O_RDONLY);
        if (lab::in_pipe < 0) return std::perror(words[2]), 2;
    } else {
        lab::in_pipe = std::atoi(words[1]), lab::out_pipe = std::atoi(words[2]);
    }
    for (;;) lab::serve_call(lab::expect(lab::to_worker::call));
}
