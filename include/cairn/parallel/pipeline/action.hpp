#pragma once
// The work of one rank in a training step: a list of actions, pure data, in the order in which they run. Printed and
// parsed as PyTorch's pipelining prints schedules, <stage><kind><micro-batch>:
//   0F2   forward of micro-batch 2 on stage 0
//   0I2   backward_input:  the gradient of the stage's input
//   0W2   backward_weight: the gradients of its parameters, after 0I2
//   0B2   backward: both at once

#include <cairn/core/error.hpp>

#include <cstddef>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

enum class action_kind : char { forward = 'F', backward = 'B', backward_input = 'I', backward_weight = 'W' };

/// See the top of the file.
struct action {
    action_kind kind = action_kind::forward;
    int stage = 0;
    int micro_batch = 0;

    bool operator==(const action&) const = default;
    /// Whether parameters' gradients grow.
    bool adds_gradients() const { return kind == action_kind::backward || kind == action_kind::backward_weight; }
    friend std::ostream& operator<<(std::ostream& out, const action& a) {
        return out << a.stage << static_cast<char>(a.kind) << a.micro_batch;
    }
};

using action_list = std::vector<action>;

/// "0F0 0B0 0F1 0B1"
inline std::string to_string(const action_list& actions) {
    std::string all;
    for (const action& a : actions) all += concat(all.empty() ? "" : " ", a);
    return all;
}

/// The list that to_string() printed. Throws, naming the word, on anything else.
inline action_list parse_actions(const std::string& text) {
    action_list all;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        std::istringstream in(word);
        action a;
        char kind = 0;
        const bool read = bool{in >> a.stage >> kind >> a.micro_batch} && in.peek() == std::char_traits<char>::eof();
        require(read && a.stage >= 0 && a.micro_batch >= 0 && std::string_view("FBIW").find(kind) != std::string::npos,
                "action number ", all.size(), ", \"", word,
                "\": expected stage, F, B, I or W, and micro-batch, such as 0F2");
        a.kind = static_cast<action_kind>(kind);
        all.push_back(a);
    }
    return all;
}

/// F0 B0 F1 B1 … on one stage: gradients of all micro-batches are added up, one micro-batch is in flight at a time.
inline action_list gradient_accumulation(int micro_batches) {
    action_list all;
    for (int m = 0; m < micro_batches; ++m)
        for (const action_kind kind : {action_kind::forward, action_kind::backward}) all.push_back({kind, 0, m});
    return all;
}

}  // namespace cairn
