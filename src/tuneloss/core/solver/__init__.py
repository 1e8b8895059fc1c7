"""The convex program of LearnLoss: built, solved and verified.

answer.py        from a guess of the argmin to verified weights
program.py       the program for one guess, in scaled coordinates
qp.py            quadratic programs as data, solved by PIQP or Clarabel and checked by their KKT conditions
reachability.py  which observations some weights in the box can select
linear.py        linear programs, by PIQP and HiGHS
"""
