"""Table 2: the sizes of the paper's training, validation and test sets, by our names."""

PAPER_SIZES = {
    "caltech101": (3060, 3371, 3370),
    "nct_crc_he_3class": (1667, 1667, 1666),  # of colorectal_histology, for which it stands
    "oxford_iiit_pet": (3680, 1835, 1834),
    "tf_flowers": (1670, 1000, 1000),
}
