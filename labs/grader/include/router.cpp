#include "router.hpp"

#include <algorithm>

namespace lab {

namespace {
std::string number(std::int64_t n, const char* one) { return std::to_string(n) + ' ' + one + (n == 1 ? "" : "s"); }
}  // namespace

void router::take(int rank, const frame_header& header, std::span<const std::byte> payload) {
    rank_state& mine = at(rank);
    if (mine.waits) throw fault("its worker spoke while it waited");
    const auto request = [&]() -> transfer& {
        const auto found = mine.open.find(header.number);
        if (found == mine.open.end()) throw fault("its worker named a request that there is not");
        return found->second;
    };
    reader in(payload);
    switch (static_cast<to_judge>(header.kind)) {
        case to_judge::send:
        case to_judge::receive: {
            transfer t;
            t.sends = header.kind == static_cast<std::uint32_t>(to_judge::send);
            t.context = in.get<std::uint32_t>(), t.peer = in.get<int>(), t.tag = in.get<int>();
            if (t.sends) {
                const std::size_t head = writer().put(t.context).put(t.peer).put(t.tag).data.size();
                t.data.assign(payload.begin() + static_cast<std::ptrdiff_t>(head), payload.end());
                t.size = t.data.size();
            } else {
                t.size = in.get<std::uint64_t>();
            }
            return post(rank, header.number, std::move(t));
        }
        case to_judge::wait: {
            transfer& t = request();
            t.awaited = true;
            if (t.matched) return complete(rank, header.number);
            mine.waits = true;
            mine.state = "waits " + described(t, mine.inside);
            return;
        }
        case to_judge::test: {
            const transfer& t = request();
            const std::byte ready{t.matched};  // an answer that tells of the other rank, as a message does
            if (t.matched && !t.sends) mine.count.rounds = std::max(mine.count.rounds, t.chain);
            return write(rank, to_worker::ready, header.number, {&ready, 1});
        }
        case to_judge::cancel: {
            const transfer& t = request();
            if (const auto queue = mine.unmatched.find({t.context, t.peer, t.tag, t.sends});
                queue != mine.unmatched.end()) {
                std::erase(queue->second, header.number);
                if (queue->second.empty()) mine.unmatched.erase(queue);
            }
            mine.held -= t.data.size();
            mine.open.erase(header.number);
            return;
        }
        case to_judge::split: {
            const int colour = in.get<int>();
            return split(rank, header.number, {colour, in.get<int>()});
        }
        case to_judge::enter:
            if (mine.inside.size() > 100) throw fault("its collectives are nested without end");
            return mine.inside.push_back(in.get<std::string>().substr(0, 100));
        case to_judge::leave:
            if (!mine.inside.empty()) mine.inside.pop_back();
            return;
        default:
            throw fault("its worker wrote what is no frame");
    }
}

void router::post(int rank, std::uint32_t number, transfer t) {
    rank_state& mine = at(rank);
    const auto knows = [&](int r) {
        return t.context < contexts_.size() && std::ranges::count(contexts_[t.context].members, r) == 1;
    };
    if (!knows(rank) || !knows(t.peer))
        throw fault("it sends to or receives from rank " + std::to_string(t.peer) + ", which there is not");
    if (mine.open.size() > 10000 || mine.held > most_frame_bytes)
        throw fault("more than 10000 transfers or 64 MB are in flight, and it waits for none of them");
    if (mine.open.contains(number) || number == 0) throw fault("its worker used the number of a request twice");
    t.posted = mine.count.seconds;
    if (t.sends) {
        ++mine.count.messages;
        mine.count.bytes += static_cast<std::int64_t>(t.size);
        t.chain = mine.count.rounds + 1;
        mine.held += t.size;
    }
    const int peer = t.peer;
    const bool sends = t.sends;
    const std::tuple own{t.context, peer, t.tag, sends};
    const auto others = at(peer).unmatched.find({t.context, rank, t.tag, !sends});
    mine.open.emplace(number, std::move(t));
    if (others == at(peer).unmatched.end()) return mine.unmatched[own].push_back(number);
    const std::uint32_t other = others->second.front();
    others->second.pop_front();
    if (others->second.empty()) at(peer).unmatched.erase(others);
    sends ? match(rank, number, peer, other) : match(peer, other, rank, number);
}

void router::match(int sender, std::uint32_t sent_number, int receiver, std::uint32_t received_number) {
    transfer &out = at(sender).open.at(sent_number), &in = at(receiver).open.at(received_number);
    if (out.size != in.size)
        throw fault("rank " + std::to_string(sender) + " sends " + number(static_cast<std::int64_t>(out.size), "byte") +
                    " to rank " + std::to_string(receiver) + ", which receives " +
                    number(static_cast<std::int64_t>(in.size), "byte") + ", tag " + std::to_string(in.tag) +
                    ": the two disagree about the size of the message");
    at(sender).held -= out.size;
    at(receiver).held += out.size;
    in.data = std::move(out.data);
    in.chain = out.chain;
    in.finished = out.finished =
        std::max(in.posted, out.posted) + net_.alpha + net_.beta * static_cast<double>(out.size);
    in.matched = out.matched = true;
    const bool in_awaited = in.awaited, out_awaited = out.awaited;
    if (in_awaited) complete(receiver, received_number);
    if (out_awaited) complete(sender, sent_number);
}

void router::complete(int rank, std::uint32_t number) {
    rank_state& mine = at(rank);
    const transfer t = std::move(mine.open.at(number));
    mine.open.erase(number);
    if (!t.sends) mine.count.rounds = std::max(mine.count.rounds, t.chain), mine.held -= t.size;
    mine.count.seconds = std::max(mine.count.seconds, t.finished);
    mine.waits = false;
    mine.state = "computes";
    write(rank, to_worker::done, number, t.sends ? std::span<const std::byte>() : std::span<const std::byte>(t.data));
}

void router::split(int rank, std::uint32_t number, split_call call) {
    const auto is_member = [&](int r) { return std::ranges::count(contexts_[number].members, r) == 1; };
    if (number >= contexts_.size() || !is_member(rank))
        throw fault("its worker named a communicator that there is not");
    if (contexts_.size() > 1000) throw fault("it splits communicators without end");
    at(rank).waits = true;
    at(rank).state = "waits in split for the other ranks";
    contexts_[number].splitting[rank] = call;
    if (contexts_[number].splitting.size() < contexts_[number].members.size()) return;
    const auto calls = std::exchange(contexts_[number].splitting, {});
    std::map<int, std::vector<int>> parts;  // by colour; those without one are alone
    const auto before = [&](int a, int b) { return calls.at(a).key < calls.at(b).key; };
    for (const int r : contexts_[number].members)
        parts[calls.at(r).colour < 0 ? -1 - r : calls.at(r).colour].push_back(r);
    std::int64_t rounds = 0;  // who splits learns of all members: what they had waited for, it has waited for too
    for (const int r : contexts_[number].members) rounds = std::max(rounds, at(r).count.rounds);
    for (auto& [colour, members] : parts) {
        std::ranges::stable_sort(members, before);
        for (std::size_t i = 0; i < members.size(); ++i) {
            at(members[i]).waits = false;
            at(members[i]).count.rounds = rounds;
            at(members[i]).state = "computes";
            const bytes words = writer().put(static_cast<std::uint32_t>(contexts_.size())).put(members).put(i).data;
            write(members[i], to_worker::part, 0, words);
        }
        contexts_.push_back({members, {}});
    }
}

std::string router::described(const transfer& t, const std::vector<std::string>& inside) {
    return (t.sends ? "for rank " + std::to_string(t.peer) + " to receive " : "for ") +
           number(static_cast<std::int64_t>(t.size), "byte") + (t.sends ? "" : " from rank " + std::to_string(t.peer)) +
           ", tag " + std::to_string(t.tag) + (inside.empty() ? "" : ", in " + inside.back());
}

std::string router::states() const {
    std::string all;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
        all += (r ? "\nrank " : "rank ") + std::to_string(r) + ' ' + ranks_[r].state;
    return all;
}

std::vector<sent> router::counts() const {
    std::vector<sent> all;
    for (const rank_state& one : ranks_) all.push_back(one.count);
    return all;
}

}  // namespace lab
