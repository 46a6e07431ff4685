#include <cairn/train/compressors.hpp>
