"""The convex program of LearnLoss: built, solved and verified.

program.py       the program for one guess of the argmin, in scaled coordinates
qp.py            quadratic programs as data, solved by PIQP or Clarabel and checked by their KKT conditions
reachability.py  which observations some weights in the box can select
"""
