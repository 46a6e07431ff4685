#include <cairn/train/models.hpp>
