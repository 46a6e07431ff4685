#include <cairn/train/data_formats.hpp>
#include <cairn/train/objectives.hpp>
