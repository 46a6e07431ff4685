// Your schedules as files that the programs `schedule` and `train` read. From the root of the repository:
//   g++ -std=c++20 -O2 -I my-lab5 labs/05-pipelines/write_schedule.cpp -o my-lab5/write_schedule
//   my-lab5/write_schedule zb_h1 2 8 > my-lab5/zb_h1.csv        name, ranks, micro-batches [, chunks of a rank]

#include "interleaved.hpp"
#include "schedules.hpp"
#include "zero_bubble.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

student::schedule named(const std::string& name, int p, int m, int v) {
    if (name == "gpipe") return student::gpipe(p, m);
    if (name == "1f1b") return student::one_f_one_b(p, m);
    if (name == "zb_h1") return student::zb_h1(p, m);
    if (name == "interleaved") return student::interleaved(p, m, v);
    throw std::invalid_argument("no schedule " + name + "; there are gpipe, 1f1b, zb_h1, interleaved");
}

}  // namespace

int main(int count, char** words) {
    const auto number = [&](int i) { return count > i ? std::atoi(words[i]) : i == 4 ? 2 : 0; };
    if (number(2) < 1 || number(3) < 1 || number(4) < 1) {
        std::fprintf(stderr, "usage: write_schedule NAME RANKS MICRO_BATCHES [CHUNKS]\n");
        return 2;
    }
    try {
        std::fputs(csv(named(words[1], number(2), number(3), number(4))).c_str(), stdout);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "write_schedule: %s\n", error.what());
        return 1;
    }
}
