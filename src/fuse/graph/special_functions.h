/* Functions that the C library lacks, in double. */
#ifndef TNI_FUSE_SPECIAL_FUNCTIONS_H
#define TNI_FUSE_SPECIAL_FUNCTIONS_H

/* The x whose erf(x) is y; infinite for -1 and 1, NaN beyond. */
double tni_erfinv(double y);
/* The derivative of lgamma. Of 0 it is infinite, of whole numbers below 0 NaN. */
double tni_digamma(double x);
/* Derivative n of digamma, n = 0, 1, 2 …; NaN for other n. */
double tni_polygamma(double n, double x);

#endif
