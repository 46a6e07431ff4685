#pragma once
// The nodes of a graph as a data set of one sample: the features of all of them, and the classes of some. A network
// sees the whole graph in every step, as Kipf and Welling train theirs (ICLR 2017).
//   x (nodes, features), each row divided by its sum where that is not 0
//   labels (nodes), −1 for a node that does not count

#include <cairn/core/csr.hpp>
#include <cairn/data/bytes.hpp>
#include <cairn/data/dataset.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
class graph_nodes {
public:
    /// Dense features of graph `name`, normalised or not; shared by the parts of a graph. Throws when they would take
    /// more than half of the machine's memory.
    static std::shared_ptr<std::vector<float>> dense(const csr_matrix<float>& m, bool normalised,
                                                     const std::string& name) {
        require(m.rows == 0 || static_cast<std::uint64_t>(m.columns) <=
                                   half_of_memory() / sizeof(float) / static_cast<std::uint64_t>(m.rows),
                "graph ", name, ": features of shape ", shape{m.rows, m.columns}, " take ",
                4.0 * static_cast<double>(m.rows) * static_cast<double>(m.columns),
                " bytes, more than half of the machine's memory; is the file damaged? Otherwise take fewer features");
        auto x = std::make_shared<std::vector<float>>(static_cast<std::size_t>(m.rows * m.columns));
        for (index_t r = 0; r < m.rows; ++r) {
            const auto first = static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r)]),
                       last = static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r) + 1]);
            double sum = 0;
            for (std::size_t i = first; i < last; ++i) sum += static_cast<double>(m.value[i]);
            const float scale = normalised && sum != 0 ? static_cast<float>(1 / sum) : 1;
            for (std::size_t i = first; i < last; ++i)
                (*x)[static_cast<std::size_t>(r * m.columns + m.column[i])] += scale * m.value[i];
        }
        return x;
    }

    /// `features` of dense(); `labels` of each node, of which those of `counted` count. Throws on a node with no class.
    graph_nodes(std::string name, std::shared_ptr<const std::vector<float>> features,
                const std::vector<std::int32_t>& labels, index_t classes, const std::vector<index_t>& counted)
        : name_(std::move(name)), features_(std::move(features)), labels_(labels.size(), -1) {
        require(!labels.empty() && !counted.empty() && features_->size() % labels.size() == 0, "graph ", name_, ": ",
                features_->size(), " features of ", labels.size(), " nodes, ", counted.size(), " of which count");
        for (const index_t node : counted) {
            require(node >= 0 && node < std::ssize(labels), "graph ", name_, ": node ", node, " of ", labels.size());
            const std::int32_t label = labels[static_cast<std::size_t>(node)];
            require(label >= 0 && label < classes, "graph ", name_, ": node ", node, " has class ", label, " of ",
                    classes, "; it cannot count");
            labels_[static_cast<std::size_t>(node)] = label;
        }
        for (index_t c = 0; c < classes; ++c) info_.names.push_back(concat("class ", c));
        info_.labels_each = std::ssize(labels_);
        info_.labels = label_place::nodes;
        info_.labelled = std::ssize(counted);
    }

    index_t size() const { return 1; }
    shape sample_shape() const {
        return {info_.labels_each, static_cast<index_t>(features_->size()) / info_.labels_each};
    }
    target_info targets() const { return info_; }
    std::string sample_name(index_t) const { return "graph " + name_; }

    bool read(index_t, augment_key, sample_slot slot) const {
        std::copy(features_->begin(), features_->end(), slot.x);
        std::copy(labels_.begin(), labels_.end(), slot.label);
        return true;
    }

private:
    std::string name_;
    std::shared_ptr<const std::vector<float>> features_;
    std::vector<std::int32_t> labels_;
    target_info info_;
};

static_assert(Dataset<graph_nodes>);

}  // namespace cairn
